"""Settings: an unknown key names the nearest, a wrong type says what fits."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from daydream.errors import UserError
from daydream.settings import changed, describe, from_dict, plain_json, require, setting, with_defaults


@dataclass(frozen=True, kw_only=True)
class BakerySettings:
    """One field of every kind."""

    ovens: int = setting(2, "how many ovens")
    heat: float = setting(0.5, "how hot")
    name: str = setting("corner", "what it is called")
    open: bool = setting(False, "whether it is open")
    bread: Literal["rye", "wheat"] = setting("rye", "what it bakes")
    limit: int | None = setting(None, "at most")
    hours: tuple[int, ...] = setting((1, 2), "when")

    def __post_init__(self) -> None:
        require(self.ovens >= 1, f"--ovens {self.ovens} must be at least 1")


class Mill:
    @dataclass(frozen=True, kw_only=True)
    class Settings:
        stones: int = setting(1, "stones")


def test_a_setting_carries_its_help_and_default() -> None:
    fields = {f.name: f for f in dataclasses.fields(BakerySettings)}
    assert fields["heat"].default == 0.5
    assert fields["heat"].metadata["help"] == "how hot"


def test_values_arrive() -> None:
    values = {"ovens": 3, "heat": 1, "name": "x", "open": True, "bread": "wheat", "limit": 4, "hours": [7, 8]}
    found = from_dict(BakerySettings, values)
    assert dataclasses.asdict(found) == {**values, "hours": (7, 8)}
    assert from_dict(BakerySettings, {}) == BakerySettings()
    assert from_dict(BakerySettings, {"limit": None, "hours": ()}).hours == ()


def test_a_config_read_back_from_json_is_the_same() -> None:
    made = BakerySettings(hours=(3,), limit=2)
    assert from_dict(BakerySettings, plain_json(dataclasses.asdict(made))) == made


def test_an_unknown_key_names_the_nearest_and_the_known() -> None:
    with pytest.raises(UserError) as caught:
        from_dict(BakerySettings, {"oven": 3})
    known = "bread, heat, hours, limit, name, open, ovens"
    assert str(caught.value) == f"unknown setting of bakery 'oven'; did you mean 'ovens'? (known: {known})"


def test_a_key_like_no_other_gets_no_hint() -> None:
    with pytest.raises(UserError) as caught:
        from_dict(BakerySettings, {"qqqq": 3})
    assert "did you mean" not in str(caught.value)
    assert "known: bread" in str(caught.value)


def test_settings_inside_a_component_are_named_after_it() -> None:
    with pytest.raises(UserError, match="unknown setting of mill 'stone'; did you mean 'stones'"):
        from_dict(Mill.Settings, {"stone": 1})


@pytest.mark.parametrize(
    ("key", "value", "takes"),
    [
        ("ovens", "3", "a whole number"),
        ("ovens", 3.0, "a whole number"),
        ("ovens", True, "a whole number"),
        ("ovens", None, "a whole number"),
        ("heat", "hot", "a number"),
        ("heat", False, "a number"),
        ("name", 3, "a text"),
        ("open", 1, "true or false"),
        ("open", "yes", "true or false"),
        ("bread", "oat", "one of rye, wheat"),
        ("limit", "none", "a whole number or nothing"),
        ("hours", 3, "a list of int"),
        ("hours", "12", "a list of int"),
        ("hours", [1, 2.5], "a list of int"),
        ("hours", [[1]], "a list of int"),
    ],
)
def test_a_wrong_type_says_what_fits(key: str, value: Any, takes: str) -> None:
    with pytest.raises(UserError) as caught:
        from_dict(BakerySettings, {key: value})
    assert str(caught.value) == f"setting '{key}' of bakery is {value!r}, but takes {takes}"


def test_a_components_own_check_runs() -> None:
    with pytest.raises(UserError, match="--ovens 0 must be at least 1"):
        from_dict(BakerySettings, {"ovens": 0})


def test_describe_in_words() -> None:
    assert describe(float | None) == "a number or nothing"
    assert describe(Literal["a", "b"]) == "one of a, b"


def test_changed_names_nested_keys() -> None:
    old = {"run": {"seed": 1, "data": "x"}, "method": {"lr": 0.1}, "gone": 1, "same": [1]}
    new = {"run": {"seed": 2, "data": "x"}, "method": {"lr": 0.1, "wd": 0}, "same": [1], "kind": {"a": 1}}
    assert changed(old, new) == ["gone", "kind", "method.wd", "run.seed"]
    assert changed(old, old) == []


def test_plain_json_turns_tuples_into_lists() -> None:
    assert plain_json({"a": (1, (2, 3))}) == {"a": [1, [2, 3]]}


def test_require() -> None:
    require(True, "never said")
    with pytest.raises(UserError, match="said"):
        require(False, "said")


def test_other_defaults_keep_everything_else() -> None:
    other = with_defaults(BakerySettings, {"ovens": 5, "stones": 1})
    assert (other().ovens, other().name, BakerySettings().ovens) == (5, "corner", 2)
    helps = [[f.metadata["help"] for f in dataclasses.fields(kind)] for kind in (other, BakerySettings)]
    assert helps[0] == helps[1]
    assert from_dict(other, {"ovens": 7}).ovens == 7
    with pytest.raises(UserError, match="must be at least 1"):
        from_dict(other, {"ovens": 0})
    with pytest.raises(UserError, match="takes a whole number"):
        from_dict(other, {"ovens": "5"})
    assert with_defaults(BakerySettings, {"stones": 1}) is BakerySettings
