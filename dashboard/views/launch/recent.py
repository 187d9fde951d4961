"""The scripts of the newest runs: the last one is in the form already, the others are one click away."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import streamlit as st

from dashboard.paths import exists
from dashboard.service import service
from dashboard.views.launch.code_fields import RECIPE, SCRIPT
from dashboard.views.launch.fields import PREFIX
from db.runs.snapshots import Code, recent_code
from domain.text.formats import as_text

MOST = 8
CHOSEN = "launch_recent"


def last_code() -> dict[str, Any]:
    """Return the form's values for the last script; the form begins with it unless the last run was a recipe."""
    codes = recent_code(service.current().store)
    scripts = [code for code in codes if _is_here(code)]
    if not scripts:
        return {}
    return _values(scripts[0]) | {"source": SCRIPT if codes[0] == scripts[0] else RECIPE}


def menu() -> None:
    """Show the menu of recent scripts, if there are any."""
    scripts = [code for code in recent_code(service.current().store) if _is_here(code)][:MOST]
    if scripts:
        st.menu_button(
            "Recent scripts", scripts, type="tertiary", icon=":material/history:", key=CHOSEN,
            format_func=_label, on_click=_choose,
        )  # fmt: skip


def _choose() -> None:
    for name, value in _values(st.session_state[CHOSEN]).items():
        st.session_state[PREFIX + name] = value


def _is_here(code: Code) -> bool:
    return code.target.startswith("/") and exists(code.target)


def _values(code: Code) -> dict[str, str]:
    """Return the form's fields; a single script needs no entry."""
    entry = "" if code.entry == PurePosixPath(code.target).name else code.entry
    return {"script": code.target, "entry": entry or "", "module": code.module or ""}


def _label(code: Code) -> str:
    start = _values(code)["entry"] or (f"-m {code.module}" if code.module else "")
    return as_text(f"{code.target} {start}".strip())
