"""Look at what a run's generators imagine: real images, exemplars and counterparts of a class, as features.

The picture is that of the paper's Figure 1b: t-SNE of one class's features a panel, real data red, exemplars green,
counterparts blue. A panel has axes of its own: what lies apart in it lies apart, how far is for the numbers to say.
"""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from daydream import atomic, rng
from daydream.components.quality import Gathered, measure
from daydream.errors import UserError, unknown
from daydream.experiment.config import check_no_code, config_from_json
from daydream.experiment.experiment import Experiment
from daydream.nets.generators import GeneratorBank
from daydream.protocol.stream import Stream
from daydream.stages.stage import State
from daydream.storage.run_folder import RunFolder, resume_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = 6  # classes looked at unless they are named
COLUMNS = 3  # panels side by side
SIDE = 2.2  # of a panel, in inches
PERPLEXITY = 30.0  # scikit-learn's own; less where there are few points
KINDS: dict[str, dict[str, Any]] = {
    "real data": {"color": "#d62728", "marker": "o", "s": 7, "alpha": 0.6},
    "exemplars": {"color": "#1a9641", "marker": "D", "s": 26},
    "counterparts": {"color": "#1f4fd8", "marker": "^", "s": 9, "alpha": 0.9},
}
"""How each kind of feature is drawn: the paper's colours; shapes too, for those who see or print no colour.

A counterpart is drawn last and small, so that one equal to its exemplar shows, and hides nothing.
"""


def look_at(path: Path, names: Sequence[str], task: int | None, picture: Path, trusted: str = "") -> dict[str, Any]:
    """Draw a run's classes and return the numbers: of each class, and over all of them.

    A method in a file is imported only if it is the `trusted` one.
    """
    run = RunFolder.open(path)
    check_no_code(run, trusted, "look")
    check_picture(picture)
    experiment = Experiment(config_from_json(run.config))
    state, stands = last_state(experiment, run)
    generators = state.nets["generators"]
    assert isinstance(generators, GeneratorBank)
    labels = choose(experiment.stream, generators.classes, names, task)
    found = gather(experiment, state, labels)
    title = f"{path.resolve().name}: {experiment.config.run.method} on {experiment.config.run.data}, {stands}"
    draw(found, title, picture)
    return {
        "run": str(path),
        "stands": stands,
        "picture": str(picture),
        "classes": {name: measure(features) for name, features in found.items()},
        "overall": measure(Gathered(*(torch.cat(parts) for parts in zip(*found.values(), strict=True)))),
    }


def check_picture(picture: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed for it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("a picture needs the package matplotlib: pip install 'daydream[plots]'")
    if picture.suffix.lower() != ".png":
        raise UserError(f"--out {picture} must end in .png: that is what is written")
    if not picture.parent.is_dir():
        raise UserError(f"--out {picture}: there is no folder {picture.parent}; make it, or choose another")


def last_state(experiment: Experiment, run: RunFolder) -> tuple[State, str]:
    """Return the state of a run's last checkpoint and, in words, where the run stands there."""
    if experiment.config.carried.imagines != "generators":
        raise UserError(
            f"{run.path} has no generators: its method '{experiment.config.run.method}' ran without them; "
            "look at a run with --method imagine or --imagine"
        )
    restored = experiment.restore(run)
    if restored is None:
        raise UserError(f"{run.path} has no checkpoint yet; go on with it: {resume_command(run.path)}")
    info, _, state = restored
    if "generators" not in state.nets:
        raise UserError(
            f"{run.path} has no generators yet: they are trained at the end of each task but the last; "
            f"go on with it: {resume_command(run.path)}"
        )
    done, inside = info["cursor"]["task"], info["cursor"]["stage"] or info["partial"]
    where = f"inside task {done + 1}" if inside else f"after task {done}"
    return state, f"{where} of {len(experiment.stream)}"


def choose(stream: Stream, num_able: int, names: Sequence[str], task: int | None) -> list[int]:
    """Return the labels to look at, by class name or the first of a task, out of the `num_able` with a generator."""
    if names and task is not None:
        raise UserError("give --class or --task, not both: a class belongs to one task")
    known = stream.train.class_names
    if names:
        for name in names:
            if name not in known:
                raise unknown("class", name, known[:num_able])
        labels = [known.index(name) for name in dict.fromkeys(names)]
        late = [known[label] for label in labels if label >= num_able]
        if late:
            raise UserError(f"class '{late[0]}' has no generator; those that have: {', '.join(known[:num_able])}")
        return labels
    number = 1 if task is None else task
    if not 1 <= number <= len(stream):
        raise UserError(f"--task {number} must lie between 1 and the run's {len(stream)} tasks")
    first = sum(stream.sizes[: number - 1])
    if first >= num_able:
        able = sum(sum(stream.sizes[:index]) < num_able for index in range(len(stream)))
        raise UserError(f"--task {number}: its classes have no generators; tasks that have: 1 to {able}")
    return list(range(first, first + min(PANELS, stream.sizes[number - 1])))


def gather(experiment: Experiment, state: State, labels: Sequence[int]) -> dict[str, Gathered]:
    """Return the features of each class, by name, under the current network.

    A class draws its unlabelled images by its own generator: its numbers do not depend on its company.
    """
    imagination, train = experiment.carried.imagination, experiment.stream.train
    assert imagination is not None
    experiment.hardware.set_up()
    found = {}
    for label in labels:
        generator = rng.generator(experiment.config.run.seed, "look", "class", label)
        name, images = train.class_names[label], train.of_classes(torch.tensor([label]))
        found[name] = imagination.gather(state, images, generator)
        if not all(part.isfinite().all() for part in found[name]):
            raise UserError(f"the features of class '{name}' are not finite: the training of this run diverged")
    return found


def embed(found: Gathered) -> list[Any]:
    """Return t-SNE [.., 2] of a class's real images, exemplars and counterparts, one map for all three."""
    from sklearn.manifold import TSNE

    parts = (found.real, found.exemplars, found.imagined)
    points = torch.cat(parts).cpu().numpy()
    perplexity = min(PERPLEXITY, (len(points) - 1) / 3)
    flat = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(points)
    return [part.numpy() for part in torch.from_numpy(flat).split([len(part) for part in parts])]


def draw(found: Mapping[str, Gathered], title: str, picture: Path) -> None:
    """Write the picture: a panel per class, equal in size."""
    from matplotlib.figure import Figure

    columns = 2 if len(found) == 4 else min(COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    width, height = max(columns * SIDE, 2 * SIDE), rows * (SIDE + 0.1) + 0.7
    figure = Figure(figsize=(width, height), dpi=200, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (name, features) in zip(panels, found.items(), strict=False):
        draw_class(axes, embed(features))
        short = name if len(name) <= 28 else f"{name[:27]}…"
        axes.set_title(short, fontsize=9, parse_math=False)
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    figure.suptitle(f"{title}: t-SNE of features", fontsize=8, color="0.35", parse_math=False)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9, markerscale=1.4)
    try:
        with atomic.replacing(picture) as part:
            figure.savefig(part, format="png")
    except OSError as error:
        raise UserError(f"--out {picture} cannot be written: {error.strerror or error}") from error


def draw_class(axes: "Axes", flat: Sequence[Any]) -> None:
    """Draw one panel: the points [.., 2] of each kind."""
    for points, (name, style) in zip(flat, KINDS.items(), strict=True):
        axes.scatter(points[:, 0], points[:, 1], label=name, edgecolors="white", linewidths=0.3, **style)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.08)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_box_aspect(1)
    for spine in axes.spines.values():
        spine.set_color("0.8")
