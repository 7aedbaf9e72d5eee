"""The paper as data: it must agree with itself and with what the paper's text says of it."""

import pytest

from daydream.errors import UserError
from daydream.reproduce.paper import cells, statements, study, value

COLUMNS = [("cifar100", 2), ("cifar100", 5), ("cifar100", 10), ("imagenet-subset", 5), ("imagenet-subset", 10)]


def test_every_row_has_every_column() -> None:
    rows: dict[tuple[str, int | None], list[tuple[str, int]]] = {}
    for cell in cells("table1"):
        rows.setdefault((cell.row, cell.memory), []).append((cell.data, cell.steps))
    assert len(rows) == 18
    assert all(columns == COLUMNS for columns in rows.values())
    assert [len(cells(table)) for table in ("table1", "ablation", "piles")] == [90, 4, 5]


def test_the_tables_agree_where_they_show_the_same_run() -> None:
    ours = value("table1", "imagine", 10, 2000)
    assert ours == 66.47
    assert ours == value("ablation", "imagine", 10, 2000, variant="sc-sdc-cyc")
    assert ours == value("piles", "imagine", 10, 2000, variant="imagenet1k")
    assert study("counterparts").values == {"n0": cells("ablation")[0].accuracy, "n2": ours}
    assert study("depth").values == {"d2": ours}
    assert study("tradeoffs").values == {}
    assert cells("ablation")[0].method == "replay"


@pytest.mark.parametrize(
    ("margin", "better", "worse"),
    [
        (0.11, ("imagine", 10, 2000, "cifar100"), ("der-pruned", 10, 2000, "cifar100")),
        (1.66, ("imagine", 5, 1000, "cifar100"), ("dde", 5, 2000, "cifar100")),
        (1.66, ("imagine", 5, 2000, "imagenet-subset"), ("podnet", 5, 2000, "imagenet-subset")),
        (2.18, ("imagine", 10, 2000, "imagenet-subset"), ("podnet", 10, 2000, "imagenet-subset")),
        (4.54, ("imagine", 10, 1000, "imagenet-subset"), ("podnet", 10, 1000, "imagenet-subset")),
    ],
)
def test_margins_that_the_text_states(
    margin: float, better: tuple[str, int, int, str], worse: tuple[str, int, int, str]
) -> None:
    a, b = value("table1", *better), value("table1", *worse)
    assert a is not None
    assert b is not None
    assert a - b == pytest.approx(margin)


def test_ours_is_best_of_the_static_methods_in_every_column() -> None:
    for data, steps in COLUMNS:
        for memory in (2000, 1000):
            column = [c for c in cells("table1") if (c.data, c.steps, c.memory) == (data, steps, memory) and c.accuracy]
            static = [c for c in column if not c.method.startswith("der")]
            assert max(static, key=lambda c: c.accuracy or 0).method == "imagine"


def test_marks_parameters_and_rules() -> None:
    table = cells("table1")
    assert {(c.method, c.memory) for c in table if c.mark == "†"} == {
        (name, 2000) for name in ("icarl", "dmc", "gd", "bic", "ucir")
    }
    assert all((c.mark == "†") == (c.source == "re-run") for c in table)
    assert {c.method for c in table if c.mark == "‡"} == {"mixup"}
    assert {c.method for c in table if c.at_least} == {"der", "der-pruned"}
    assert {c.parameters for c in table if not c.at_least and c.data == "cifar100"} == {0.46, None}
    assert len({c.accuracy for c in table if c.method == "joint"}) == 2
    assert all(c.budget == "total" for c in table if c.row in ("Ours", "MixUp"))
    assert {c.steps: c.reports for c in table if (c.method, c.memory, c.data) == ("podnet", 2000, "cifar100")} == {
        2: None,
        5: "cnn",
        10: "nme",
    }


def test_empty_cells_and_unknown_ones() -> None:
    assert value("table1", "tpcil", 2, 2000) is None
    assert value("table1", "mixup", 5, 1000) is None
    assert statements("ablation") == ()
    assert any("n = 2" in line for line in statements("counterparts"))
    with pytest.raises(UserError, match="unknown table of the paper 'table4'"):
        cells("table4")
