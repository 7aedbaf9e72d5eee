"""The locks: they hold what the project asks for, in the versions known to work, by hashes, and name no index."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = {"demo": "report", "tests": "dev", "docs": "docs"}
UNCONSTRAINED = {"setuptools", "triton"}
"""Which version of them comes is torch's to say."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: str) -> dict[str, str]:
    """Return the versions in a lock; each has a hash, and there is nothing else in it."""
    found = {}
    whole = (ROOT / "requirements" / f"{lock}.lock").read_text().replace("\\\n", "")
    for line in whole.splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z0-9-]+)==(\S+)( ; [^-]+?)?((?:\s+--hash=sha256:[0-9a-f]{64})+)", line)
        assert match, line[:80]
        found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("lock", [*LOCKS, "torch"])
def test_versions_are_those_known_to_work(lock: str) -> None:
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    known = {canonical(line.partition("==")[0]): line.partition("==")[2] for line in constraints if "==" in line}
    found = pinned(lock)
    assert found
    assert {name: known.get(name) for name in found if name not in UNCONSTRAINED} == {
        name: version for name, version in found.items() if name not in UNCONSTRAINED
    }


@pytest.mark.parametrize(("lock", "extra"), LOCKS.items())
def test_all_that_is_asked_for_is_locked(lock: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"][extra]]
    asked += project["build-system"]["requires"]
    names = {canonical(re.split(r"[<>=;\[ ]", line)[0]) for line in asked}
    assert names - pinned(lock).keys() == {"torch"}
    assert pinned("torch").keys() == {"torch"}
