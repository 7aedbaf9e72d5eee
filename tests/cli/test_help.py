"""What `--help` shows: what most need; the rest is shown by `--help-all`, and all of it is recorded."""

import re
from dataclasses import fields

import pytest
from command_line import call

from daydream.experiment.config import sections_of
from daydream.methods import METHODS
from daydream.settings import is_expert

MOST = 40
"""Flags that `run --help` shows of any method, those of the command included."""


def shown(text: str) -> set[str]:
    return set(re.findall(r"^│ +\*? *(--[a-z-]+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("method", sorted(METHODS))
def test_help_is_short_and_help_all_is_whole(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "run", "--method", method, "--help")
    assert code == 0
    few = shown(out)
    assert len(few) <= MOST
    code, out, _ = call(capsys, "run", "--method", method, "--help-all")
    assert code == 0
    every = [field for kind in sections_of("shapes", method).values() for field in fields(kind)]
    flags = {f"--{field.name.replace('_', '-')}" for field in every}
    assert flags <= shown(out)
    assert {f"--{field.name.replace('_', '-')}" for field in every if is_expert(field)} == flags - few


def test_an_expert_setting_is_a_flag_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "run", "--clamp", "-1", "--dry-run")
    assert (code, "--clamp -1.0 must be above 0" in err) == (2, True)
