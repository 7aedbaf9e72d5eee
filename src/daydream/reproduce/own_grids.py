"""Grids that are not the paper's: a stand-in for a data set of its, our recipe, and what the recipe's parts give."""

from daydream.components.settings import BESIDE_GENERATORS, KEYS
from daydream.reproduce import paper
from daydream.reproduce.protocols import MEMORY, Cell, Choices, Values, values

TAUGHT: dict[str, Values] = {"pile": {"pile_distill": BESIDE_GENERATORS}}
"""What brings a method what the pile gives without generators, as strong as imagination has it."""
SUITED: Values = {"pile_teach": True}
"""What brings a row soft labels and distillation, at the weights that suit."""
SOFT: Values = {"pile_soft": 4.0}
"""What brings rows soft labels of one weight, whatever passes beside them; a search on held-out images had it last."""
FEW = 5
"""Exemplars per class at which imagination and its controls are compared."""
MEMORIES = (1, 2, 5, 10, 20, 40)
"""Exemplars per class of the grid `memory`."""


def standin(choices: Choices, tasks: int | None) -> list[Cell]:
    """A stand-in for Table 1's half on ImageNet-Subset: 100 classes of Tiny-ImageNet, the other 100 as the pile."""
    steps, sections = 5, choices.scale.stand_in
    rows: tuple[tuple[str, str, str, Values], ...] = (
        ("joint", "joint", "upper bound", {}),
        ("replay", "replay", "without imagination", {}),
        ("replay+pile-distill", "replay", "without, distillation on the pile", TAUGHT),
        ("imagine", "imagine", "with imagination", {}),
    )
    return [
        Cell(
            name=name,
            row=row,
            method=method,
            steps=steps,
            values=values(choices, None if method == "joint" else tasks, method, steps, sections={**sections, **pile}),
        )
        for name, method, row, pile in rows
    ]


def dream(choices: Choices, tasks: int | None) -> list[Cell]:
    """Our recipe in the cells of Table 1 that the paper's method has."""
    return [
        Cell(
            name=f"dream-{cell.steps}-{cell.memory}",
            row="dream",
            method="dream",
            steps=cell.steps,
            memory=cell.memory,
            paper=cell.accuracy,
            values=values(choices, tasks, "dream", cell.steps, cell.memory or MEMORY),
        )
        for cell in paper.cells("table1")
        if (cell.method, cell.data) == ("imagine", "cifar100")
    ]


def parts(choices: Choices, tasks: int | None) -> list[Cell]:
    """What each part of `dream` gives: added to methods without it, as `dream` sets it, and taken from `dream`."""
    from daydream.components.parts import PartsSettings
    from daydream.experiment.config import sections_of
    from daydream.methods.replay import Dream, Replay

    trained = choices.scale.method
    sections = sections_of(str(choices.scale.run["data"]), "dream", base_epochs=trained.get("base_epochs"))
    off, recipe = PartsSettings(), {key: sections[key]() for key in KEYS}
    given = {part: {part: value} for part, value in recipe["parts"].in_use.items()}
    long, short = (int(trained.get("epochs", kind.Settings.epochs)) for kind in (Replay, Dream))
    changes: dict[str, tuple[str, dict[str, Values]]] = {
        "": ("", {}),
        **{f"+{part}": (f"+ {part}", {"parts": settings}) for part, settings in given.items()},
        "+pile-distill": ("+ pile distillation", TAUGHT),
        "+pile-teach": ("+ pile teaching", {"pile": SUITED}),
        "+parts": ("+ " + " + ".join(given), {"parts": {k: v for each in given.values() for k, v in each.items()}}),
        **{
            f"-{part}": (f"without {part}", {"parts": {key: getattr(off, key) for key in settings}})
            for part, settings in given.items()
        },
    }
    if short != long:
        changes["+short"] = ("+ short increments", {"method": {"epochs": short}})
        changes["-short"] = ("without short increments", {"method": {"epochs": long}})
    if recipe["pile"].pile_teach:
        changes["-pile-teach"] = ("without pile teaching", {"pile": {"pile_teach": False}})
    if recipe["imagination"].counterparts:
        changes["-generators"] = ("without generators", {"imagination": {"counterparts": 0}})
    carried = {
        "replay": ["", *(change for change in changes if change.startswith("+") and change != "+parts")],
        "imagine": [""],
        "dream": ["", *(change for change in changes if change.startswith("-"))],
        "ucir": ["", "+parts"],
        "podnet": ["", "+parts"],
    }
    fixed: dict[str, Values] = {"podnet": {"configuration": "nme"}}  # as in Table 1 at 10 steps
    found = []
    for method, variants in carried.items():
        own = fixed.get(method, {})
        for change in variants:
            words, changed = changes[change]
            changed = {**changed, "method": {**own, **changed.get("method", {})}}
            run = values(choices, tasks, method, sections=changed)
            beside, row = method if change else "", f"{method} {words}".rstrip()
            found.append(Cell(name=method + change, row=row, method=method, beside=beside, values=run))
    return found


def controls(choices: Choices, tasks: int | None) -> list[Cell]:
    """Imagination and what else could stand in the counterparts' place, each with and without soft labels."""
    rows: dict[str, tuple[str, str, dict[str, Values]]] = {
        "no-pile": ("replay", "no pile", {}),
        "taught": ("replay", "pile taught", TAUGHT),
        "suited": ("replay", "pile taught, weights that suit", {"pile": SUITED}),
        "generators": ("imagine", "generators", {}),
        **{
            name: ("imagine", row, {"imagination": {"counterparts_from": source}})
            for name, row, source in (
                ("hard", "hard counterparts, no generators", "hard"),
                ("equal-weights", "equal weights, no generators", "nothing"),
                ("exemplar-copies", "copies of the exemplar", "exemplars"),
                ("real-maps", "real maps (oracle)", "real"),
            )
        },
    }
    found = []
    for name, (method, row, sections) in rows.items():
        for soft in (False,) if name in ("no-pile", "suited") else (False, True):
            pile = {**sections.get("pile", {}), **(SOFT if soft else {})}
            given = {**sections, "run": per_class(FEW), **({"pile": pile} if pile else {})}
            found.append(
                Cell(
                    name=name + "+soft" * soft,
                    row=row + " + soft labels" * soft,
                    method=method,
                    beside="" if name == "taught" and not soft else "taught",
                    values=values(choices, tasks, method, sections=given),
                )
            )
    return found


CONTRASTS = {
    "controls": (
        ("taught", "no-pile"),
        ("taught+soft", "taught"),
        ("suited", "taught+soft"),
        ("generators", "equal-weights"),
        ("generators+soft", "equal-weights+soft"),
        ("hard", "equal-weights"),
        ("hard+soft", "equal-weights+soft"),
        ("real-maps", "equal-weights"),
    ),
}
"""Pairs of cells, by grid, of which a verdict is given whether the first is better than the second."""


BESIDE = {
    "parts": "the row with the method's name alone",
    "controls": "the row 'pile taught'",
    "memory": "replay with as many exemplars",
}
"""What differences are to, in the grids that compare their own cells."""


def per_class(memory: int) -> Values:
    """Return the settings of a run that keeps so many exemplars of each class."""
    return {"budget": "per_class", "memory": memory}


def memory(choices: Choices, tasks: int | None) -> list[Cell]:
    """Accuracy against exemplars per class: how many pictures must be kept?"""
    rows: tuple[tuple[str, str, str, dict[str, Values]], ...] = (
        ("replay", "replay", "replay", {}),
        ("taught", "replay", "replay, pile taught", {"pile": SUITED}),
        ("imagine", "imagine", "imagine", {}),
        ("dream", "dream", "dream", {}),
        ("ucir", "ucir", "ucir", {}),
    )
    return [
        Cell(
            name=f"{name}-{kept}",
            row=row,
            method=method,
            memory=kept,
            beside=f"replay-{kept}" if name != "replay" else "",
            values=values(choices, tasks, method, sections={**sections, "run": per_class(kept)}),
        )
        for name, method, row, sections in rows
        for kept in MEMORIES
    ]
