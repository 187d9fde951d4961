"""Actions of buttons: dialogs that confirm them, and their error on the page where the store refuses."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from dashboard.security.turns import NoTurn
from dashboard.service import service
from db.engine import StoreGone
from db.exceptions import NoSuch, WrongState
from domain.errors import InvalidRequest
from domain.people.rights import Denied
from domain.text.formats import as_text

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
        clicked = st.button(yes, type="primary", on_click=attempt, args=(act,))
    if not show() and clicked:
        then()


# Actions of buttons that the store may refuse or cannot store, and their error on the page.

P = ParamSpec("P")
DIALOG = "dialog_refused"
RULES = (InvalidRequest, WrongState, NoSuch, Denied, NoTurn)
AWAY = (SQLAlchemyError, OSError, StoreGone)
"""Whatever a store raises that cannot be read or written now."""
UNKNOWN_CAUSE = "The store is busy or cannot be reached; try again in a moment."
log = logging.getLogger(__name__)


def attempt(act: Callable[[], object], key: str = DIALOG) -> None:
    """Carry out an action before the page reruns, and remember its error under `key`."""
    try:
        act()
    except (*RULES, *AWAY) as error:
        st.session_state[key] = in_words(error)


def told(act: Callable[P, object]) -> Callable[P, None]:
    """Return the action of a button that stands where no error can: it is shown over the page for a while."""

    @functools.wraps(act)
    def acting(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except (*RULES, *AWAY) as error:
            st.toast(as_text(in_words(error)), icon=":material/error:", duration="long")

    return acting


def in_words(error: Exception) -> str:
    """Return why an action was not carried out, and what to do."""
    return str(error) if isinstance(error, RULES) else f"Nothing was changed. {cause(error)}"


def cause(error: Exception) -> str:
    """Return why the store takes nothing, and what to do."""
    log.warning("an action could not be stored: %s", error)
    if isinstance(error, StoreGone):
        return str(error)
    return service.current().store.trouble_of(error) or UNKNOWN_CAUSE


def show(key: str = DIALOG) -> bool:
    """Show the error of the last action once; returns whether there was one."""
    error: str | None = st.session_state.pop(key, None)
    if error is not None:
        st.error(as_text(error))
    return error is not None
