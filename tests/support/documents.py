"""The project's documents, and the commands and code in them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(page), flags=re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Return the words of each command in a page's bash blocks, without comments and variables set before it."""
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    words = (shlex.split(re.sub(r"^(\w+=\S+ +)+", "", line), comments=True) for line in lines)
    return [found for found in words if found]
