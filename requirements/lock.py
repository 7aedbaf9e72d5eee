"""Write the locks beside this file again, after a change of pyproject.toml or constraints.txt.

`python requirements/lock.py INDEX`, where INDEX is the address of a package index with a page of links for each name
(its `/simple` part included), whose links carry SHA-256. Versions are those of constraints.txt, which this needs to
know all packages; hashes are of wheels alone, for CPython 3.11 to 3.14 on Linux, macOS and Windows.
"""

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = {"demo": "report", "docs": "docs", "tests": "dev"}
"""Each lock, and the extra that it is of."""
OTHERS = {"colorama": "sys_platform == 'win32'"}
"""What only other systems than the one that writes the locks need."""
BUILD = ("hatchling", "editables")
"""What an installation of the project itself needs."""
BUILDS = ("6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",)
"""Hashes of torch that the usual index does not have: its CPU build for Linux on x86-64 and Python 3.11."""
CPU = re.compile(r"-(?:macosx|win)_")
"""Wheels of torch on the usual index that need no CUDA packages."""
WHEEL = re.compile(
    r"(?:py2\.py3-none|py3-none|cp31[1-4]-cp31[1-4]|cp3\d+-abi3)-"
    r"(?:any|[\w.]*manylinux[\w.]*_(?:x86_64|aarch64)|macosx_[\w.]*|win_amd64)\.whl"
)
HEAD = "# Written by requirements/lock.py: hashes of wheels, for {}.\n"
ALL = "all that `make {} LOCKED=1` needs but torch"
TORCH = "torch without CUDA: for macOS and Windows, and for Linux on x86-64 with Python 3.11"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def resolved(extra: str) -> dict[str, str]:
    """Return the version of every package that an extra brings on this system."""
    words = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    words += ["-c", str(HERE.parent / "constraints.txt"), f"{HERE.parent}[{extra}]", *BUILD]
    report = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    found = {canonical(item["metadata"]["name"]): item["metadata"]["version"] for item in report["install"]}
    return {name: version for name, version in found.items() if name != "daydream"}


def markers(extra: str) -> dict[str, str]:
    """Return the condition under which the project asks for a package, where there is one."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    asked = [line.partition(";") for line in project["optional-dependencies"][extra]]
    return OTHERS | {canonical(re.split(r"[<>=\[]", name)[0]): when.strip() for name, _, when in asked if when}


def hashes(index: str, name: str, version: str, such: re.Pattern[str] = WHEEL) -> list[str]:
    """Return the hashes of a version's wheels for the systems that the locks are of."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/") as page:
        links = re.findall(r"/([^/\"]+\.whl)#sha256=([0-9a-f]{64})", page.read().decode())
    mine = [(file, digest) for file, digest in links if canonical(file.split("-")[0]) == name]
    found = {
        digest for file, digest in mine if file.split("-")[1] == version and WHEEL.search(file) and such.search(file)
    }
    if not found:
        raise SystemExit(f"{index} has no wheel of {name} {version}")
    return sorted(found)


def locked(name: str, version: str, digests: Iterable[str], when: str = "") -> str:
    pinned = f"{name}=={version}" + (f" ; {when}" if when else "")
    return " \\\n".join([pinned, *(f"    --hash=sha256:{digest}" for digest in digests)]) + "\n"


def main(index: str) -> None:
    constraints = (HERE.parent / "constraints.txt").read_text().splitlines()
    pins = {canonical(line.partition("==")[0]): line.partition("==")[2] for line in constraints if "==" in line}
    for lock, extra in LOCKS.items():
        found, when = resolved(extra) | {name: pins[name] for name in OTHERS}, markers(extra)
        del found["torch"]
        whole = [
            locked(name, found[name], hashes(index, name, found[name]), when.get(name, "")) for name in sorted(found)
        ]
        head = HEAD.format(ALL.format("test" if lock == "tests" else lock))
        (HERE / f"{lock}.lock").write_text(head + "".join(whole))
    digests = (*hashes(index, "torch", pins["torch"], CPU), *BUILDS)
    (HERE / "torch.lock").write_text(HEAD.format(TORCH) + locked("torch", pins["torch"], digests))


if __name__ == "__main__":
    main(sys.argv[1])
