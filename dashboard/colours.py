"""The colours and marks of pages, with Streamlit and without it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote


def theme(name: str) -> dict[str, Any]:
    """The settings of the theme `light` or `dark`."""
    settings: dict[str, Any] = tomllib.loads(THEME.read_text(encoding="utf-8"))["theme"][name]
    return settings


THEME = Path(__file__).parent / "views" / ".streamlit" / "config.toml"
_NAMES = {
    "page": "backgroundColor",
    "card": "secondaryBackgroundColor",
    "text": "textColor",
    "line": "borderColor",
    "accent": "linkColor",
}


def variables() -> str:
    """CSS that sets --page, --card, --text, --line and --accent for the browser's light or dark theme."""
    light, dark = (_declarations(theme(name)) for name in ("light", "dark"))
    return f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _declarations(settings: dict[str, Any]) -> str:
    return "".join(f"--{name}:{settings[key]};" for name, key in _NAMES.items())


# The Rankzero mark as SVG, inline so that neither a browser tab nor a page has to request a file.

_DRAWING = """<g fill="none" stroke="#666df0" stroke-width="2"><circle cx="12" cy="12" r="4" fill="#666df0"/>
<path d="M12 8V3M12 16v5M8 12H3M16 12h5"/><circle cx="12" cy="12" r="10.5" opacity=".45"/></g>"""
MARK = f'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24" viewBox="0 0 24 24">{_DRAWING}</svg>'
"""The SVG of the mark. A Material icon would be fetched from the internet."""
ICON = "data:image/svg+xml," + quote(MARK)
"""The mark as a data URL."""
LOGO = f'<img src="{ICON}" width="24" height="24" alt=""><span>Rankzero</span>'
"""Mark and name, as HTML."""
