"""How `make docs` builds the site: Sphinx, MyST and Furo; offline, so no font and no script from elsewhere."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from daydream import __version__

project = "daydream"
author = "the daydream authors"
copyright = "the daydream authors, MIT licence"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
default_role = "code"

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "daydream"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses where there is no server
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

ROOT = Path(__file__).parents[1]
AT_THE_ROOT = {"README": "index", "SECURITY": "security", "CHANGELOG": "changelog"}
"""Pages outside docs/, and where the site has them."""


def whole_site(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the pages at the repository's root where the site has them, and let links lead there."""
    name = next((name for name, place in AT_THE_ROOT.items() if place == page and page != "index"), None)
    text = source[0] if name is None else (ROOT / f"{name}.md").read_text(encoding="utf-8").replace("](docs/", "](")
    links = r"\]\((?:\.\./)*(README|SECURITY|CHANGELOG)\.md(?:#[^)]*)?\)"
    source[0] = re.sub(links, lambda link: f"](/{AT_THE_ROOT[link[1]]}.md)", text)


def plainly(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Read a docstring as the plain text it is: only `code` means something, a bar or a star is itself."""
    lines[:] = [re.sub(r"(`[^`]*`)|([|*_])", lambda m: m[1] or f"\\{m[2]}", line) for line in lines]


def setup(app: Sphinx) -> None:
    app.connect("source-read", whole_site)
    app.connect("autodoc-process-docstring", plainly)
