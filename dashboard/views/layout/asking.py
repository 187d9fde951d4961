"""Dialogs: opened by the page itself, and confirmed."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard.views.layout import refusals

ASKED = "dialog_asked"


def ask(dialog: Callable[..., None], *arguments: object) -> None:
    """Open a dialog once the page has run again.

    A fragment that refreshes itself may not open one: where a click in the dialog meets a refresh, Streamlit runs
    the fragment and takes what it opened as done with it, so that the click goes unanswered.
    """
    st.session_state[ASKED] = (dialog, arguments)
    st.rerun(scope="app")


def show_asked() -> None:
    """Show the dialog that was asked for; called by the script of all pages."""
    if ASKED in st.session_state:
        dialog, arguments = st.session_state.pop(ASKED)
        dialog(*arguments)


def confirm(yes: str, no: str, act: Callable[[], object], then: Callable[[], None] = lambda: st.rerun()) -> None:
    """Show the two buttons; `then` follows a successful action, whose error is shown in the dialog."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button(no):
            st.rerun()
        clicked = st.button(yes, type="primary", on_click=refusals.attempt, args=(act,))
    if not refusals.show() and clicked:
        then()
