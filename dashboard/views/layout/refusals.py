"""Actions of buttons that the store may refuse, and their error on the page."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from db.records.exceptions import NoSuchNode, NoSuchRun, WrongState
from domain.errors import InvalidRequest
from domain.text.formats import as_text

DIALOG = "dialog_refused"


def attempt(act: Callable[[], object], key: str = DIALOG) -> None:
    """Carry out an action before the page reruns, and remember its error under `key`."""
    try:
        act()
    except (InvalidRequest, WrongState, NoSuchRun, NoSuchNode) as error:
        st.session_state[key] = str(error)


def show(key: str = DIALOG) -> bool:
    """Show the error of the last action once; returns whether there was one."""
    error: str | None = st.session_state.pop(key, None)
    if error is not None:
        st.error(as_text(error))
    return error is not None
