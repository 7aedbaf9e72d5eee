"""Draw docs/recipe.png from the results kept of held-out images: what each part of `dream` does to old and new classes.

    python benchmarks/recipe_picture.py [-o docs/recipe.png]

Nothing is trained. NME after each task, CIFAR-100, 50 + 10 x 5 classes, one run each (docs/notebook/recipe-parts.md).
"""

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
TURNED = "replay, rotations settled, blend 0.6"
ADDED = (
    ("replay", "replay7", "black", ""),
    ("+ blend", "replay, blend 0.6", "#0072b2", "o"),
    ("+ rotations", "replay, rotations, blend 0.6", "#d55e00", "s"),
    ("+ upright at the end", TURNED, "#009e73", "D"),
    ("+ blank squares", f"{TURNED}, erase 0.375", "#cc79a7", "^"),
)
IMAGINED = "imagine, rotations settled, blend 0.6, weight 0.25, no pile distillation"
OTHERWISE = (
    ("as above, without blank squares", TURNED, "#009e73", "D"),
    ("160 epochs an increment, not 60", f"{TURNED}, 160 epochs", "#b8860b", "v"),
    ("blank squares, but not in the base task", f"{TURNED}, erase 0.375 in increments alone", "#cc79a7", "^"),
    ("counterparts, a quarter of their weight", IMAGINED, "#5b4bb5", "x"),
)


def kept() -> dict[str, list[dict[str, Any]]]:
    """Return the tasks of every kept run by its name; of runs of one name, that with the most tasks."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("balance", "parts", "dream"):
        for run in json.loads((ROOT / "results" / f"validation-seed7-{name}.json").read_text())["runs"]:
            if len(run["tasks"]) > len(found.get(run["name"], [])):
                found[run["name"]] = run["tasks"]
    return found


def draw(axis: Axes, rows: tuple[tuple[str, str, str, str], ...], kind: str, runs: dict[str, Any]) -> None:
    for label, name, colour, marker in rows:
        points = [(50 + 5 * i, task[kind]) for i, task in enumerate(runs[name]) if i]
        axis.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label, linewidth=1.2, markersize=3.5)
    axis.set_xticks(range(55, 101, 5))
    axis.tick_params(labelsize=7, length=2)
    axis.grid(axis="y", color="0.9", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "docs" / "recipe.png")
    out = parser.parse_args().out
    runs = kept()
    figure = Figure(figsize=(8.4, 4.8), dpi=160, layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey="col")
    for (left, right), rows, title in zip(
        panels, (ADDED, OTHERWISE), ("parts added in turn", "other choices"), strict=True
    ):
        draw(left, rows, "nme_old", runs)
        draw(right, rows, "nme_new", runs)
        left.set_ylabel(f"{title}\nNME (%)", fontsize=8)
        right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7, borderaxespad=0)
    for axis, title in zip(panels[0], ("old classes", "new classes"), strict=True):
        axis.set_title(title, fontsize=9)
    figure.supxlabel("classes seen", fontsize=8)
    figure.savefig(out)
    print(out)


if __name__ == "__main__":
    main()
