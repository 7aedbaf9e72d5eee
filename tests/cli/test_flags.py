"""Flags: one for every field of every section, and settings written back as the flags that give them."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from daydream.cli.flags import Section, command
from daydream.cli.flags import given as given_flag
from daydream.errors import UserError
from daydream.experiment.config import RunSettings
from daydream.settings import as_arguments, from_dict, setting


@dataclass(frozen=True, kw_only=True)
class Bakery:
    oven_count: int = setting(2, "how many ovens")
    heat: float = setting(0.5, "how hot")
    name: str = setting("corner", "what it is called")
    is_open: bool = setting(False, "whether it is open")
    warm: bool = setting(True, "whether it is warm")
    fast: bool | None = setting(None, "whether it is fast")
    bread: Literal["rye", "wheat"] = setting("rye", "what it bakes")
    limit: int | None = setting(None, "at most")
    hours: tuple[int, ...] = setting((1, 2), "when")
    weights: tuple[float, ...] = setting((), "how heavy")


@dataclass(frozen=True, kw_only=True)
class Mill:
    stones: int = setting(1, "how many stones")


@dataclass(frozen=True, kw_only=True)
class Smithy:
    heat: float = setting(0.9, "how hot")


SECTIONS = [Section("bakery", "The bakery", Bakery), Section("mill", "The mill", Mill)]


class Caller:
    """A command line that remembers what its body was given."""

    def __init__(self, sections: list[Section]) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.out = ""
        self.app = typer.Typer()
        self.app.command()(command(sections, self.body))

    def body(self, *, values: dict[str, dict[str, Any]], out: Annotated[str, typer.Option(help="where")] = "") -> None:
        """Bake."""
        self.values, self.out = values, out

    def __call__(self, *words: str) -> dict[str, dict[str, Any]]:
        result = CliRunner().invoke(self.app, list(words), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return self.values


def test_without_flags_the_defaults_arrive() -> None:
    caller = Caller(SECTIONS)
    assert caller() == {"bakery": asdict(Bakery()), "mill": {"stones": 1}}
    assert caller.out == ""


def test_every_field_is_a_flag() -> None:
    caller = Caller(SECTIONS)
    words = "--oven-count 5 --heat 0.25 --name x --is-open --no-warm --fast --bread wheat --limit 7 --hours 3,4,5"
    found = caller(*words.split(), "--weights", "0.5, 2", "--stones", "9", "--out", "there")
    assert found["bakery"] == {
        "oven_count": 5,
        "heat": 0.25,
        "name": "x",
        "is_open": True,
        "warm": False,
        "fast": True,
        "bread": "wheat",
        "limit": 7,
        "hours": (3, 4, 5),
        "weights": (0.5, 2.0),
    }
    assert found["mill"] == {"stones": 9}
    assert caller.out == "there"
    assert caller("--no-fast")["bakery"]["fast"] is False
    assert caller("--hours", "")["bakery"]["hours"] == ()


def test_help_shows_every_flag_its_meaning_and_its_panel() -> None:
    result = CliRunner().invoke(Caller(SECTIONS).app, ["--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    for section in SECTIONS:
        assert section.title in result.output
        for name, field in section.settings.__dataclass_fields__.items():
            assert f"--{name.replace('_', '-')}" in result.output
            assert field.metadata["help"] in result.output
    assert "rye|wheat" in result.output
    assert "Bake." in result.output
    assert "--no-is-open" not in result.output


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(UserError, match="--hours 1,x must be numbers separated by commas"):
        Caller(SECTIONS)("--hours", "1,x")


def test_an_unknown_flag_is_refused() -> None:
    assert CliRunner().invoke(Caller(SECTIONS).app, ["--ovens", "3"]).exit_code == 2


def test_two_settings_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="two settings share the name 'heat'"):
        command([*SECTIONS, Section("smithy", "The smithy", Smithy)], lambda values: None)


ANY_BAKERY = st.builds(
    Bakery,
    oven_count=st.integers(-5, 5),
    heat=st.floats(allow_nan=False, allow_infinity=False),
    name=st.text(alphabet="abc -", max_size=4),
    is_open=st.booleans(),
    warm=st.booleans(),
    fast=st.none() | st.booleans(),
    bread=st.sampled_from(["rye", "wheat"]),
    limit=st.none() | st.integers(-5, 5),
    hours=st.lists(st.integers(-3, 3), max_size=3).map(tuple),
    weights=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3).map(tuple),
)


@settings(deadline=None, max_examples=60)
@given(ANY_BAKERY)
def test_settings_written_as_flags_give_the_same_settings(made: Bakery) -> None:
    words = as_arguments(asdict(made), Bakery)
    assert from_dict(Bakery, Caller(SECTIONS)(*words)["bakery"]) == made


def test_defaults_are_left_out() -> None:
    assert as_arguments(asdict(Bakery()), Bakery) == []
    assert as_arguments({"stones": 3}, Mill) == ["--stones", "3"]
    assert as_arguments({"hours": [3, 4], "warm": False, "is_open": True}, Bakery) == [
        *("--hours", "3,4"),
        "--no-warm",
        "--is-open",
    ]


def test_the_runs_own_settings_round_trip() -> None:
    made = RunSettings(data="cifar100", base=50, compile=False, validation=0.1, tensorboard=True, budget="per_class")
    words = as_arguments(asdict(made), RunSettings)
    caller = Caller([Section("run", "The run", RunSettings)])
    assert from_dict(RunSettings, caller(*words)["run"]) == made


def test_a_flag_in_raw_arguments() -> None:
    words = ["train", "--data", "cifar100", "--method=replay", "--last"]
    assert given_flag(words, "--data", "shapes") == "cifar100"
    assert given_flag(words, "--method", "x") == "replay"
    assert given_flag(words, "--seed", "1") == "1"
    assert given_flag(words, "--last", "none") == "none"
