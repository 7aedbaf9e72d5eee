"""The grids: which runs a table or figure is made of, the paper's or (`own_grids.py`) our own."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from daydream.errors import UserError, unknown
from daydream.methods import METHODS
from daydream.reproduce import own_grids, paper
from daydream.reproduce.protocols import MEMORY, STEPS, Cell, Choices, Values, values

SWEEP = (0.0, 0.25, 4.0)
"""A trade-off's values, as multiples of its default."""


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


def table1(choices: Choices, tasks: int | None) -> list[Cell]:
    """Table 1, the half on CIFAR-100: every method by its number of steps and its memory; FOSTER, a row of our own.

    At a scale that has one column it is that of 10 steps and memory 2,000.
    """
    own = Cell(
        name=f"foster-{STEPS}-{MEMORY}",
        row="FOSTER (not in the paper)",
        method="foster",
        values=values(choices, tasks, "foster"),
    )
    found = [
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
    column = [cell for cell in found if cell.steps == STEPS and cell.memory in (None, MEMORY)]
    return [*(column if choices.scale.one_column else found), own]


def _of_table1(choices: Choices, tasks: int | None, cell: paper.PaperCell) -> Values | None:
    if (
        cell.method == "joint"
    ):  # one training on all classes, the same run in every column; of one column, on its classes
        return values(choices, tasks if choices.scale.one_column else None, "joint")
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
                    "imagination": {"generator_losses": cell.variant.replace("-", "+")},
                    "pile": {"pile_distill": 0.0},
                },
            ),
        )
        for cell in paper.cells("ablation")
    ]


def piles(choices: Choices, tasks: int | None) -> list[Cell]:
    """Table 3: which images imagination may use. At other scales shares of their pile stand for ImageNet's classes."""
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
        share = pile.get("pile_classes", 900 if pile else 1000) / 1000
        sections = choices.scale.pile_share(share) if choices.scale.pile_share else {"pile": pile}
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
    from daydream.components.imagination_settings import FORMS, ImaginationSettings
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


GRIDS: dict[str, Callable[[Choices, int | None], list[Cell]]] = {
    "table1": table1,
    "ablation": ablation,
    "piles": piles,
    "counterparts": counterparts,
    "depth": depth,
    "tradeoffs": tradeoffs,
    "features": features,
    "standin": own_grids.standin,
    "dream": own_grids.dream,
    "parts": own_grids.parts,
    "controls": own_grids.controls,
    "memory": own_grids.memory,
}
OWN = frozenset({"parts", "controls", "memory"})
"""Grids that compare their own cells with each other, by both accuracies, and none with the paper's."""
REMARKS = {
    "standin": "a stand-in for ImageNet-Subset and not it: the paper has no number to compare with",
    "dream": 'our recipe, beside the numbers of the paper\'s own method (its row "Ours")',
    **dict.fromkeys(OWN, "our own table, not one of the paper's"),
}
"""What must be said of a grid wherever it is shown."""
