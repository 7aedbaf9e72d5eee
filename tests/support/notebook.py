"""Run the Python of a Markdown notebook as Jupyter would: block after block, in one namespace."""

from pathlib import Path
from typing import Any

from documents import blocks


def run_notebook(page: str) -> dict[str, Any]:
    """Return what the page's blocks leave behind; a mistake is shown with the page's own lines."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python"), 1):
        exec(compile(block, f"{Path(page).name}, block {number}", "exec"), namespace)
    return namespace
