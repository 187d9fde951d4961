"""Actions of widgets: dialogs that confirm them, and their error on the page where the store refuses.

What a widget changes is given to it when it is drawn, and its identity stands in the widget's key: a click that arrives
after the page has turned to something else then changes what was clicked, or nothing."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import NamedTuple, ParamSpec

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from dashboard.components.browser import IS_REDRAW
from dashboard.security.turns import NoTurn
from dashboard.service import service
from dashboard.views.layout import visitor
from db.engine import StoreGone
from db.exceptions import NoSuch, WrongState
from db.people import consequences
from domain.people.consequences import Consequence
from domain.people.rights import Denied
from domain.requests.errors import InvalidRequest
from domain.text.formats import as_text

ASKED, OPENED = "dialog_asked", "dialog_opened"


def ask(dialog: Callable[..., None], *arguments: object) -> None:
    """Open a dialog once the page is drawn; also from the callback of a widget."""
    st.session_state[ASKED] = (dialog, arguments)


def show_asked() -> None:
    """Show the dialog that was asked for; called by the script of all pages."""
    if OPENED in st.session_state:
        dialog, arguments = st.session_state.pop(OPENED)
        dialog(*arguments)


def pass_on_asked() -> None:
    """Have the script of all pages open the dialog: one that a page opens goes when the page is drawn again."""
    if ASKED in st.session_state:
        st.session_state[OPENED] = st.session_state.pop(ASKED)
        st.rerun()


def confirm(
    target: str, yes: str, no: str, act: Callable[[], object], then: Callable[[], None] = lambda: st.rerun()
) -> None:
    """Show the two buttons of a question about `target`; `then` follows a successful action, whose error is shown in
    the dialog."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button(no, key=f"keep_{target}"):
            st.rerun()
        clicked = st.button(yes, type="primary", on_click=attempt, args=(act,), key=f"confirm_{target}")
    if not show() and clicked:
        then()


# Actions that take something from other people: they are asked about, with names and counts.


class Question(NamedTuple):
    """What is asked before something is taken from others."""

    target: str
    """The identity of what is changed."""
    title: str
    yes: str
    no: str
    consequence: Callable[[], Consequence]


def act_or_ask(question: Question, act: Callable[[], object]) -> None:
    """Act at once where it takes nothing from others, else open a dialog that asks; for callbacks of widgets."""

    def decide() -> None:
        consequence = question.consequence()
        if consequence.sentence:
            ask(_ask_about, question, consequence, act)
        else:
            act()

    told(decide)()


def end_or_ask(
    noun: str, target: str, owner: str | None, verb: str, act: Callable[[], object], no: str = "Keep it"
) -> None:
    """Revoke, remove or stop a thing of the visitor at once; ask, with the owner's name, if it is somebody else's.

    `verb` and `noun` make the question: Stop this sweep? For callbacks of widgets; `act` is done for the visitor."""
    consequence = functools.partial(consequences.of_thing, noun, owner)
    key = f"{noun.replace(' ', '_')}_{target}"
    act_or_ask(Question(key, f"{verb} this {noun}?", f"{verb} it", no, consequence), act)


def _ask_about(question: Question, consequence: Consequence, act: Callable[[], object]) -> None:
    @visitor.dialog(question.title)
    def dialog() -> None:
        st.markdown(as_text(consequence.sentence))
        confirm(question.target, question.yes, question.no, act)

    dialog()


# Actions of buttons that the store may refuse or cannot store, and their error on the page.

P = ParamSpec("P")
DIALOG = "dialog_refused"
RULES = (InvalidRequest, WrongState, NoSuch, Denied, NoTurn)
AWAY = (SQLAlchemyError, OSError, StoreGone)
"""Whatever a store raises that cannot be read or written now."""
UNKNOWN_CAUSE = "The store is busy or cannot be reached; try again in a moment."
log = logging.getLogger(__name__)


def attempt(act: Callable[[], object], key: str = DIALOG) -> None:
    """Carry out an action for the visitor before the page reruns, and remember its error under `key`."""
    service.act_for_visitor()
    try:
        act()
    except (*RULES, *AWAY) as error:
        st.session_state[key] = in_words(error)


def told(act: Callable[P, object]) -> Callable[P, None]:
    """Return the action of a button that stands where no error can: it is shown over the page for a while."""

    @functools.wraps(act)
    def acting(*args: P.args, **kwargs: P.kwargs) -> None:
        service.act_for_visitor()
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
    """Show the error of the last action until the visitor does something else; returns whether there is one."""
    shown = f"{key}_shown"
    before = st.session_state.get(shown) if st.session_state.get(IS_REDRAW) else None
    error: str | None = st.session_state.pop(key, before)
    st.session_state[shown] = error
    if error is not None:
        st.error(as_text(error))
    return error is not None
