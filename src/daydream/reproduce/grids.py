"""The grids: which runs a table or figure is made of, the paper's or our own, at the paper's scale or in miniature.

Every run keeps its memory by the rule `total`, as the paper's own do (40 exemplars per class at 50 classes, 20 at 100);
numbers the paper quotes for other methods may belong to another rule, which each of its cells names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from daydream.errors import UserError, unknown
from daydream.methods import METHODS, load_method
from daydream.reproduce import paper
from daydream.stream import PAPER_ORDERS

Values = dict[str, Any]

STEPS, MEMORY = 10, 2000
"""The protocol of all but Table 1."""
PILE_CLASSES = (500, 300, 100)
SWEEP = (0.0, 0.25, 4.0)
"""A trade-off's values, as multiples of its default."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a grid is run: the paper's protocol, or one in miniature on the embedded data set."""

    name: str
    run: Values
    data: Values = field(default_factory=dict)
    method: Values = field(default_factory=dict)
    """Settings for each method that has them."""
    imagination: Values = field(default_factory=dict)
    orders: tuple[str, ...]
    stand_in: Mapping[str, Values] = field(default_factory=dict)
    """Sections of the runs that stand in for ImageNet-Subset, where they differ from the other grids'."""
    exemplars: float = 1.0
    """Exemplars for each one of the paper's."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Tasks that are enough for a grid; all of them where it is not named."""
    comparable: bool = True
    """Whether our numbers may stand beside the paper's."""


FULL = Scale(
    name="full",
    run={"data": "cifar100", "backbone": "resnet32", "base": 50, "budget": "total"},
    stand_in={"run": {"data": "tiny-imagenet", "backbone": "resnet18"}, "data": {"labelled": "0:100"}},
    orders=PAPER_ORDERS["cifar100"],
    tasks={"piles": 4, "counterparts": 4, "depth": 4, "tradeoffs": 4},
)
SMOKE = Scale(
    name="smoke",
    run={"data": "shapes", "backbone": "resnet10", "base": 10, "budget": "total"},
    data={"classes": 20, "train_per_class": 80, "test_per_class": 20, "image_size": 16, "pile_size": 1000},
    method={"base_epochs": 24, "epochs": 8, "batch_size": 20, "finetune_epochs": 3, "correction_epochs": 5},
    imagination={"generator_epochs": 4, "generator_updates": 5, "generator_width": 16},
    orders=("natural", "seed:1", "seed:2"),
    exemplars=0.1,
    tasks=dict.fromkeys(
        ("table1", "ablation", "piles", "counterparts", "depth", "tradeoffs", "features", "standin", "dream", "parts"),
        3,
    ),
    comparable=False,
)
SCALES = {scale.name: scale for scale in (FULL, SMOKE)}


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user decides about a grid."""

    scale: Scale = FULL
    root: str = ""
    unlabeled: str = ""
    tasks: int | None = None
    seed: int = 1
    device: str = "auto"
    pile_classes: tuple[int, ...] = PILE_CLASSES


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number to be reproduced: the run that gives it, and the paper's."""

    name: str
    row: str
    method: str
    steps: int = STEPS
    memory: int | None = MEMORY
    paper: float | None = None
    mark: str = ""
    budget: str = "total"
    """The memory rule behind the paper's number."""
    beside: str = ""
    """The cell of which this one is a variant, where a grid compares its own cells."""
    values: Values | None
    """The run's settings but for the class order; None where the method is not implemented."""


def build(grid: str, choices: Choices) -> list[Cell]:
    """Return the cells of a grid."""
    if grid not in GRIDS:
        raise unknown("grid", grid, GRIDS)
    tasks = choices.scale.tasks.get(grid) if choices.tasks is None else choices.tasks
    return GRIDS[grid](choices, tasks)


def select(cells: Sequence[Cell], names: Sequence[str], methods: Sequence[str]) -> list[Cell]:
    """Return the cells whose names match one of some patterns and whose methods are among those given."""
    for pattern in names:
        if not any(fnmatchcase(cell.name, pattern) for cell in cells):
            raise unknown("cell", pattern, [cell.name for cell in cells])
    for method in methods:
        if method not in {cell.method for cell in cells}:
            raise unknown("method of this grid", method, {cell.method for cell in cells})
    chosen = [
        cell
        for cell in cells
        if (not names or any(fnmatchcase(cell.name, pattern) for pattern in names))
        and (not methods or cell.method in methods)
    ]
    if not any(cell.values for cell in chosen):
        reason = "what --cells and --methods leave is nothing" if not chosen else f"'{chosen[0].method}' is not yet one"
        raise UserError(f"there is nothing to run: {reason}; methods that exist: {', '.join(METHODS)}")
    return chosen


def values(
    choices: Choices,
    tasks: int | None,
    method: str,
    steps: int = STEPS,
    memory: int = MEMORY,
    sections: Mapping[str, Values] = MappingProxyType({}),
) -> Values | None:
    """Return the settings of a run, in sections as `make_config` takes them; None for a method that does not exist."""
    if method not in METHODS:
        return None
    scale, kind = choices.scale, load_method(method)
    run = {
        **scale.run,
        **sections.get("run", {}),
        "method": method,
        "steps": steps,
        "memory": round(memory * scale.exemplars),
        "tasks": tasks,
        "root": choices.root,
        "seed": choices.seed,
        "device": choices.device,
    }
    known = {f.name for f in fields(kind.Settings)}
    recipe = {key: value for key, value in scale.method.items() if key in known}
    whole: Values = {"run": run, "data": {**scale.data, **sections.get("data", {})}}
    whole["method"] = {**recipe, **sections.get("method", {})}
    whole["parts"] = sections.get("parts", {})
    if kind.replays:
        needs_pile = bool(kind.imagines or whole["parts"].get("pile_distill"))
        whole["imagination"] = {**scale.imagination, **sections.get("imagination", {})} if needs_pile else {}
        whole["pile"] = {"unlabeled": choices.unlabeled, **sections.get("pile", {})} if needs_pile else {}
    return whole


def table1(choices: Choices, tasks: int | None) -> list[Cell]:
    """Table 1, the half on CIFAR-100: every method by its number of steps and its memory."""
    return [
        Cell(
            name=f"{cell.method}-{cell.steps}-{cell.memory}" if cell.memory else f"{cell.method}-{cell.steps}",
            row=cell.row,
            method=cell.method,
            steps=cell.steps,
            memory=cell.memory,
            paper=cell.accuracy,
            mark=cell.mark,
            budget=cell.budget,
            values=_of_table1(choices, tasks, cell),
        )
        for cell in paper.cells("table1")
        if cell.data == "cifar100" and cell.accuracy is not None
    ]


def _of_table1(choices: Choices, tasks: int | None, cell: paper.PaperCell) -> Values | None:
    if cell.method == "joint":  # one training on all classes: the same run in every column
        return values(choices, None, "joint")
    # The paper's row takes PODNet's head at 5 steps and its nearest means at 10: its code has a configuration for each.
    settings = {"configuration": cell.reports} if cell.method == "podnet" and cell.reports else {}
    return values(choices, tasks, cell.method, cell.steps, cell.memory or MEMORY, {"method": settings})


def ablation(choices: Choices, tasks: int | None) -> list[Cell]:
    """Table 2: which losses train the generators."""
    return [
        Cell(
            name=cell.variant,
            row=cell.row,
            method=cell.method,
            paper=cell.accuracy,
            values=values(
                choices,
                tasks,
                cell.method,
                sections={
                    # The paper's objective alone.
                    "imagination": {"generator_losses": cell.variant.replace("-", "+"), "pile_distillation": 0.0}
                },
            ),
        )
        for cell in paper.cells("ablation")
    ]


def piles(choices: Choices, tasks: int | None) -> list[Cell]:
    """Table 3: which images imagination may use. In miniature the pile's size stands for its number of classes."""
    printed = {cell.variant: cell.accuracy for cell in paper.cells("piles")}
    kinds: list[tuple[str, str, str, Values]] = [
        ("all", "all classes", "imagenet1k", {}),
        ("without-cifar100", "without CIFAR-100's classes", "imagenet-ec", {"pile_exclude": "cifar100"}),
    ]
    for count in choices.pile_classes:
        chosen = {"pile_exclude": "cifar100", "pile_classes": count}
        kinds.append((f"classes-{count}", f"{count} of those", f"imagenet-{count}", chosen))
    found = []
    for name, row, variant, pile in kinds:
        small = not choices.scale.comparable
        share = pile.get("pile_classes", 900 if pile else 1000) / 1000
        sections = {"data": {"pile_size": round(share * choices.scale.data["pile_size"])}} if small else {"pile": pile}
        run = values(choices, tasks, "imagine", sections=sections)
        found.append(Cell(name=name, row=row, method="imagine", paper=printed.get(variant), values=run))
    return found


def counterparts(choices: Choices, tasks: int | None) -> list[Cell]:
    """Figure 3a: the number n of counterparts per exemplar; n = 0 is the method without."""
    printed = paper.study("counterparts").values
    return [
        Cell(
            name=f"n{n}",
            row=f"n = {n}",
            method="imagine" if n else "replay",
            paper=printed.get(f"n{n}"),
            values=values(choices, tasks, "imagine" if n else "replay", sections={"imagination": {"counterparts": n}}),
        )
        for n in (0, 1, 2, 4, 8)
    ]


def depth(choices: Choices, tasks: int | None) -> list[Cell]:
    """Figure 3b: the number d of residual blocks of a generator."""
    printed = paper.study("depth").values
    return [
        Cell(
            name=f"d{d}",
            row=f"d = {d}",
            method="imagine",
            paper=printed.get(f"d{d}"),
            values=values(choices, tasks, "imagine", sections={"imagination": {"generator_depth": d}}),
        )
        for d in (1, 2, 4)
    ]


def tradeoffs(choices: Choices, tasks: int | None) -> list[Cell]:
    """The four trade-off parameters, one at a time: without it, a quarter of its default, four times its default."""
    from daydream.methods.imagination import FORMS, ImaginationSettings
    from daydream.methods.replay import ReplaySettings

    usual = ImaginationSettings()
    swept = (
        ("lambda", "imagination", "decoupling", FORMS[usual.generator_form].decoupling),
        ("lambda_cyc", "imagination", "cycle", usual.cycle),
        ("alpha_1", "imagination", "imagined_weight", usual.imagined_weight),
        ("alpha_2", "method", "distillation", ReplaySettings().distillation),
    )
    found = [Cell(name="default", row="defaults", method="imagine", values=values(choices, tasks, "imagine"))]
    for symbol, section, setting, default in swept:
        for factor in SWEEP:
            value = round(factor * default, 6)
            run = values(choices, tasks, "imagine", sections={section: {setting: value}})
            row = f"{symbol} = {value:g} (default {default:g})"
            found.append(Cell(name=f"{symbol}-{value:g}", row=row, method="imagine", values=run))
    return found


def features(choices: Choices, tasks: int | None) -> list[Cell]:
    """Figure 1b: the run whose features are drawn."""
    return [Cell(name="imagine", row="the method", method="imagine", values=values(choices, tasks, "imagine"))]


def standin(choices: Choices, tasks: int | None) -> list[Cell]:
    """A stand-in for Table 1's half on ImageNet-Subset: 100 classes of Tiny-ImageNet, the other 100 as the pile."""
    steps, sections = 5, choices.scale.stand_in
    rows: tuple[tuple[str, str, str, Values], ...] = (
        ("joint", "joint", "upper bound", {}),
        ("replay", "replay", "without imagination", {}),
        ("replay+pile-distill", "replay", "without, distillation on the pile", pile_distilled()),
        ("imagine", "imagine", "with imagination", {}),
    )
    return [
        Cell(
            name=name,
            row=row,
            method=method,
            steps=steps,
            values=values(
                choices, None if method == "joint" else tasks, method, steps, sections={**sections, "parts": parts}
            ),
        )
        for name, method, row, parts in rows
    ]


def pile_distilled() -> Values:
    """Return the part that brings a method what the pile gives without generators, as strong as imagination has it."""
    from daydream.methods.imagination import ImaginationSettings

    return {"pile_distill": ImaginationSettings().pile_distillation}


def dream(choices: Choices, tasks: int | None) -> list[Cell]:
    """Our recipe in the cells of Table 1 that the paper's method has."""
    settings = {"epochs": short_epochs(choices)}
    return [
        Cell(
            name=f"dream-{cell.steps}-{cell.memory}",
            row="dream",
            method="dream",
            steps=cell.steps,
            memory=cell.memory,
            paper=cell.accuracy,
            values=values(choices, tasks, "dream", cell.steps, cell.memory or MEMORY, {"method": settings}),
        )
        for cell in paper.cells("table1")
        if (cell.method, cell.data) == ("imagine", "cifar100")
    ]


def long_epochs(choices: Choices) -> int:
    """Return the epochs of an increment of `replay`."""
    from daydream.methods.replay import Replay

    return int(choices.scale.method.get("epochs", Replay.Settings().epochs))


def short_epochs(choices: Choices) -> int:
    """Return the epochs of an increment of `dream`: the same share of those of `replay` at any scale."""
    from daydream.methods.replay import Dream, Replay

    return max(1, round(long_epochs(choices) * Dream.Settings().epochs / Replay.Settings().epochs))


def parts(choices: Choices, tasks: int | None) -> list[Cell]:
    """What each part of `dream` gives: added to methods without it, as `dream` sets it, and taken from `dream`."""
    from daydream.components.parts import PartsSettings
    from daydream.methods.replay import Dream

    # All settings of a part come and go together.
    given = {
        part: {key: value for key, value in Dream.defaults.items() if key.startswith(part.removesuffix("s"))}
        for part in ("blend", "rotations", "erase")
    }
    off = PartsSettings()
    long, short = long_epochs(choices), short_epochs(choices)
    changes: dict[str, tuple[str, dict[str, Values]]] = {
        "": ("", {}),
        **{f"+{part}": (f"+ {part}", {"parts": settings}) for part, settings in given.items()},
        "+short": ("+ short increments", {"method": {"epochs": short}}),
        "+pile-distill": ("+ pile distillation", {"parts": pile_distilled()}),
        "+parts": ("+ " + " + ".join(given), {"parts": {k: v for each in given.values() for k, v in each.items()}}),
        **{
            f"-{part}": (f"without {part}", {"parts": {key: getattr(off, key) for key in settings}})
            for part, settings in given.items()
        },
        "-short": ("without short increments", {"method": {"epochs": long}}),
        "-generators": ("without generators", {"imagination": {"counterparts": 0}}),
    }
    carried = {
        "replay": ["", *(f"+{part}" for part in given), "+short", "+pile-distill"],
        "imagine": [""],
        "dream": ["", *(change for change in changes if change.startswith("-"))],
        "ucir": ["", "+parts"],
        "podnet": ["", "+parts"],
    }
    # PODNet as in Table 1 at 10 steps; `dream` with its own epochs at any scale.
    fixed: dict[str, Values] = {"podnet": {"configuration": "nme"}, "dream": {"epochs": short}}
    found = []
    for method, variants in carried.items():
        own = fixed.get(method, {})
        for change in variants:
            words, sections = changes[change]
            sections = {**sections, "method": {**own, **sections.get("method", {})}}
            run = values(choices, tasks, method, sections=sections)
            beside, row = method if change else "", f"{method} {words}".rstrip()
            found.append(Cell(name=method + change, row=row, method=method, beside=beside, values=run))
    return found


GRIDS: dict[str, Callable[[Choices, int | None], list[Cell]]] = {
    "table1": table1,
    "ablation": ablation,
    "piles": piles,
    "counterparts": counterparts,
    "depth": depth,
    "tradeoffs": tradeoffs,
    "features": features,
    "standin": standin,
    "dream": dream,
    "parts": parts,
}
OWN = frozenset({"parts"})
"""Grids that compare their own cells with each other, by both accuracies, and none with the paper's."""
REMARKS = {
    "standin": "a stand-in for ImageNet-Subset and not it: the paper has no number to compare with",
    "dream": 'our recipe, beside the numbers of the paper\'s own method (its row "Ours")',
    "parts": "our own table, not one of the paper's",
}
"""What must be said of a grid wherever it is shown."""
