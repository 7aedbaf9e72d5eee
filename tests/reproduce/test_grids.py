"""Which runs a grid is made of."""

from dataclasses import replace

import pytest

from daydream.errors import UserError
from daydream.experiment.config import Config, make_config
from daydream.methods import METHODS
from daydream.methods.replay import Dream
from daydream.reproduce import grids, own_grids, protocols
from daydream.settings import changed

FULL, SMOKE = protocols.Choices(root="/data", unlabeled="imagenet32:/pile"), protocols.Choices(scale=protocols.SMOKE)
SMALL = protocols.Choices(scale=protocols.SMALL, root="/data")


@pytest.mark.parametrize("choices", [FULL, SMALL, SMOKE], ids=["full", "small", "smoke"])
@pytest.mark.parametrize("grid", grids.GRIDS)
def test_every_cell_is_a_valid_run(grid: str, choices: protocols.Choices) -> None:
    cells = grids.build(grid, choices)
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        assert (cell.values is None) == (cell.method not in METHODS)
        if cell.values is not None:
            run = make_config(**cell.values).run
            budget = "per_class" if grid in ("controls", "memory") else "total"
            assert (run.budget, run.method, run.seed) == (budget, cell.method, 1)


def test_table1_holds_what_the_paper_prints_for_cifar() -> None:
    cells = {cell.name: cell for cell in grids.build("table1", FULL)}
    assert len(cells) == 18 * 3 - 6 + 1  # six are empty at 2 steps; FOSTER is ours
    ours = cells["imagine-5-1000"]
    assert ours.paper == 67.08
    assert ours.values is not None
    run = ours.values["run"]
    assert (run["data"], run["base"], run["steps"], run["memory"], run["tasks"]) == ("cifar100", 50, 5, 1000, None)
    assert ours.values["pile"]["unlabeled"] == "imagenet32:/pile"
    assert cells["joint-2"].values == cells["joint-10"].values


def test_podnet_runs_the_configuration_whose_accuracy_the_paper_quotes() -> None:
    chosen = {c.steps: c.values["method"] for c in grids.build("table1", FULL) if c.name in ("podnet-5-2000", "podnet-10-2000") and c.values}  # fmt: skip # noqa: E501
    assert {steps: method["configuration"] for steps, method in chosen.items()} == {5: "cnn", 10: "nme"}


def test_a_pile_is_asked_for_only_by_those_who_imagine() -> None:
    for cell in grids.build("table1", FULL):
        if cell.values is not None:
            wants = bool(cell.values.get("pile", {}).get("unlabeled"))
            assert wants == (cell.method in ("imagine", "mixup", "dmc", "gd"))


def test_tradeoffs_change_one_setting_at_a_time() -> None:
    usual, *others = [make_config(**c.values).to_json() for c in grids.build("tradeoffs", FULL) if c.values]
    names = [changed(usual, other) for other in others]
    assert [len(found) for found in names] == [1] * 12
    assert {found[0] for found in names} == {
        "imagination.decoupling",
        "imagination.cycle",
        "imagination.imagined_weight",
        "method.distillation",
    }


def test_piles_and_tasks_follow_the_choices() -> None:
    some = replace(FULL, pile_classes=(50,), tasks=7)
    cells = {cell.name: cell for cell in grids.build("piles", some)}
    assert list(cells) == ["all", "without-cifar100", "classes-50"]
    few = cells["classes-50"].values
    assert few is not None
    assert few["run"]["tasks"] == 7
    assert few["pile"] == {"unlabeled": "imagenet32:/pile", "pile_exclude": "cifar100", "pile_classes": 50}
    assert cells["classes-50"].paper is None
    assert {c.values["run"]["tasks"] for c in grids.build("piles", FULL) if c.values} == {4}
    sizes = [c.values["data"]["pile_size"] for c in grids.build("piles", SMOKE) if c.values]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 5


def test_the_stand_in_is_100_classes_of_tiny_imagenet_with_the_others_as_its_pile() -> None:
    cells = {cell.name: cell for cell in grids.build("standin", protocols.Choices(root="/data"))}
    assert list(cells) == ["joint", "replay", "replay+pile-distill", "imagine"]
    for cell in cells.values():
        assert cell.values is not None
        run = make_config(**cell.values).run
        assert (run.data, run.backbone, run.base, run.steps, run.memory) == ("tiny-imagenet", "resnet18", 50, 5, 2000)
        assert cell.values["data"] == {"labelled": "0:100"}
        assert cell.values.get("pile", {}).get("unlabeled", "") == ""
        assert cell.paper is None
    small = [cell.values["run"]["data"] for cell in grids.build("standin", SMOKE) if cell.values]
    assert small == ["shapes"] * 4
    bare, distilled = (make_config(**cells[name].values or {}) for name in ("replay", "replay+pile-distill"))
    assert changed(bare.to_json(), distilled.to_json()) == ["pile.pile_distill"]
    assert distilled.carried.pile_distill == make_config(**cells["imagine"].values or {}).carried.pile_distill


@pytest.mark.parametrize("choices", [FULL, SMOKE])
def test_our_recipe_stands_in_the_cells_of_the_papers_method(choices: protocols.Choices) -> None:
    ours = {(c.steps, c.memory): c for c in grids.build("dream", choices)}
    theirs = {(c.steps, c.memory): c for c in grids.build("table1", choices) if c.method == "imagine"}
    assert len(ours) == 6
    assert ours.keys() == theirs.keys()
    recipe = next(c.values for c in grids.build("parts", choices) if c.name == "dream")
    for place, cell in ours.items():
        assert cell.values is not None
        assert cell.paper == theirs[place].paper
        run = {"steps": cell.values["run"]["steps"], "memory": cell.values["run"]["memory"]}
        assert recipe is not None
        assert cell.values == {**recipe, "run": {**recipe["run"], **run}}
    assert ours[10, 2000].values == recipe


def parts_against_their_method() -> dict[str, list[str]]:
    """Return the settings in which each variant of the grid `parts` differs from its method."""
    cells = {cell.name: make_config(**cell.values).to_json() for cell in grids.build("parts", FULL) if cell.values}
    variants = [cell for cell in grids.build("parts", FULL) if cell.beside]
    return {cell.name: changed(cells[cell.beside], cells[cell.name]) for cell in variants}


def test_a_part_is_added_or_taken_and_nothing_else_changes() -> None:
    blend, rotations, erase, epochs = ["parts.blend"], ["parts.rotations"], ["parts.erase"], ["method.epochs"]
    assert {name: sorted(found) for name, found in parts_against_their_method().items()} == {
        "replay+rotations": rotations,
        "replay+blend": blend,
        "replay+erase": erase,
        "replay+short": epochs,
        "replay+pile-distill": ["pile.pile_distill", "pile.unlabeled"],
        "replay+pile-teach": ["pile.pile_teach", "pile.unlabeled"],
        "dream-rotations": rotations,
        "dream-blend": blend,
        "dream-erase": erase,
        "dream-short": epochs,
        "dream-generators": ["imagination.counterparts"],
        "ucir+parts": blend + erase + rotations,
        "podnet+parts": blend + erase + rotations,
    }


def test_parts_follow_a_retuned_dream(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = {"blend": 0.7, "rotations": "all", "erase": 0.5}
    monkeypatch.setattr(Dream, "defaults", tuned)
    built = grids.build("parts", FULL)
    cells = {cell.name: make_config(**cell.values).to_json()["parts"] for cell in built if cell.values}
    assert cells["ucir+parts"] == cells["dream"] == {**cells["replay"], **tuned}
    assert cells["replay+blend"]["blend"] == 0.7
    assert cells["dream-blend"] == {**cells["dream"], "blend": 1.0}
    assert cells["dream-rotations"] == {**cells["dream"], "rotations": "none"}


def test_short_increments_are_a_part_of_long_trainings_alone() -> None:
    built = grids.build("parts", FULL)
    cells = {cell.name: make_config(**cell.values).method.epochs for cell in built if cell.values}
    assert {name for name, epochs in cells.items() if epochs == 60} == {"replay+short"} | {
        name for name in cells if name.startswith("dream") and name != "dream-short"
    }
    assert cells["replay"] == cells["dream-short"] == 160
    small = {cell.name: make_config(**cell.values) for cell in grids.build("parts", SMALL) if cell.values}
    assert {config.method.epochs for config in small.values()} == {40}
    assert {name for name in small if name.startswith("dream")} == {
        "dream",
        "dream-blend",
        "dream-rotations",
        "dream-pile-teach",
    }
    assert changed(small["dream"].to_json(), small["dream-pile-teach"].to_json()) == ["pile.pile_teach"]


def test_the_methods_of_parts_are_runs_of_table1() -> None:
    ours = {cell.name: cell.values for cell in grids.build("parts", FULL)}
    printed = {cell.name: cell.values for cell in grids.build("table1", FULL)}
    assert all(ours[name] == printed[f"{name}-10-2000"] for name in ("imagine", "ucir", "podnet"))


def test_selection() -> None:
    cells = grids.build("table1", SMOKE)
    names = [cell.name for cell in grids.select(cells, ["imagine-*-2000", "joint-2"], [])]
    assert names == ["joint-2", "imagine-2-2000", "imagine-5-2000", "imagine-10-2000"]
    assert [c.name for c in grids.select(cells, ["*-10-1000"], ["ucir"])] == ["ucir-10-1000"]
    with pytest.raises(UserError, match="unknown cell 'imagin-5-2000'; did you mean 'imagine-5-2000'"):
        grids.select(cells, ["imagin-5-2000"], [])
    with pytest.raises(UserError, match="unknown method of this grid 'replay'"):
        grids.select(cells, [], ["replay"])
    with pytest.raises(UserError, match="nothing to run: what --cells and --methods leave is nothing"):
        grids.select(cells, ["ucir-5-2000"], ["imagine"])
    with pytest.raises(UserError, match="unknown grid 'table2'; did you mean 'table1'"):
        grids.build("table2", SMOKE)


def test_a_method_that_does_not_exist_is_not_run() -> None:
    cells = [protocols.Cell(name="other-5", row="Other", method="other", values=protocols.values(SMOKE, None, "other"))]
    assert cells[0].values is None
    with pytest.raises(UserError, match="nothing to run: 'other' is not yet one"):
        grids.select(cells, [], [])


def controls_of(choices: protocols.Choices) -> dict[str, Config]:
    return {cell.name: make_config(**cell.values) for cell in grids.build("controls", choices) if cell.values}


def test_controls_differ_from_the_generators_in_one_setting_and_all_have_soft_labels_too() -> None:
    cells = controls_of(SMALL)
    assert len(cells) == 14
    usual = cells["generators"].to_json()
    for name in ("hard", "equal-weights", "exemplar-copies", "real-maps"):
        assert changed(usual, cells[name].to_json()) == ["imagination.counterparts_from"]
    for name in set(cells) - {"no-pile", "suited"}:
        if not name.endswith("+soft"):
            assert changed(cells[name].to_json(), cells[f"{name}+soft"].to_json()) == ["pile.pile_soft"]
    assert changed(cells["taught"].to_json(), cells["suited"].to_json()) == ["pile.pile_distill", "pile.pile_teach"]
    assert {(found.run.memory, found.run.budget, found.run.tasks) for found in cells.values()} == {(5, "per_class", 6)}
    assert [name for name, found in cells.items() if found.carried.oracle] == ["real-maps", "real-maps+soft"]
    assert {found.carried.pile_distill for name, found in cells.items() if name != "no-pile"} == {0.5}


def test_every_contrast_and_every_baseline_is_of_cells_there_are() -> None:
    for grid in grids.GRIDS:
        names = {cell.name for cell in grids.build(grid, SMALL)}
        assert {cell.beside for cell in grids.build(grid, SMALL)} - {""} <= names
        assert {name for pair in own_grids.CONTRASTS.get(grid, ()) for name in pair} <= names


def test_the_memory_curve_changes_the_exemplars_of_each_class_alone() -> None:
    cells = {cell.name: make_config(**cell.values) for cell in grids.build("memory", SMALL) if cell.values}
    assert len(cells) == 5 * 6
    for name in ("replay", "taught", "imagine", "dream", "ucir"):
        few, many = cells[f"{name}-1"], cells[f"{name}-40"]
        assert changed(few.to_json(), many.to_json()) == ["run.memory"]
        assert (few.run.memory, many.run.memory) == (1, 40)
    assert cells["taught-5"].carried.teaches_on_pile
    assert not cells["replay-5"].carried.needs_pile
