"""Streamlit's light and dark theme colours, for the pages that Streamlit does not draw."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

THEME = Path(__file__).parent / "views" / ".streamlit" / "config.toml"
_NAMES = {
    "page": "backgroundColor",
    "card": "secondaryBackgroundColor",
    "text": "textColor",
    "line": "borderColor",
    "accent": "linkColor",
}


def theme(name: str) -> dict[str, Any]:
    """The settings of the theme `light` or `dark`."""
    settings: dict[str, Any] = tomllib.loads(THEME.read_text(encoding="utf-8"))["theme"][name]
    return settings


def variables() -> str:
    """CSS that sets --page, --card, --text, --line and --accent for the browser's light or dark theme."""
    light, dark = (_declarations(theme(name)) for name in ("light", "dark"))
    return f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _declarations(settings: dict[str, Any]) -> str:
    return "".join(f"--{name}:{settings[key]};" for name, key in _NAMES.items())
