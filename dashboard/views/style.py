"""What all pages share in looks: constant style rules, the colours of states, the banner for trouble."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Literal, ParamSpec

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from dashboard.views.formats import as_text
from db.states import State

P = ParamSpec("P")
Colour = Literal["red", "orange", "yellow", "blue", "green", "violet", "gray", "primary"]
log = logging.getLogger(__name__)

STATE_COLOURS: dict[str, Colour] = {
    State.QUEUED: "yellow",
    State.STARTING: "violet",
    State.RUNNING: "blue",
    State.STOPPING: "orange",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.STOPPED: "gray",
}
STATE_PILLS = {
    State.QUEUED: "#e0b12d80",
    State.STARTING: "#9a6ae080",
    State.RUNNING: "#3f7cf080",
    State.STOPPING: "#ee8a3380",
    State.SUCCEEDED: "#2ea86580",
    State.FAILED: "#e5484d80",
    State.STOPPED: "#8a90a380",
}
"""Backgrounds of the states in tables: half transparent, so that they suit light and dark."""

_STYLE = """<style>
footer, [data-testid="stStatusWidget"] {display: none}
.stApp [data-stale="true"] {opacity: 1}
.st-key-launch_meaning {position: sticky; top: 4.2rem}
.st-key-refusal p, [class*="st-key-refusal_"] p {font-size: .8rem; line-height: 1.2; margin-top: -.7rem}
</style>"""


def apply() -> None:
    """Constant rules only; nothing a person wrote ever reaches them."""
    st.html(_STYLE)
    st.logo(":material/hub:", size="medium")


def state_badge(state: str, lost_contact: bool = False) -> None:
    """The state as a coloured pill."""
    st.badge(state, color=STATE_COLOURS.get(state, "gray"))
    if lost_contact:
        st.badge("lost contact", color="orange", icon=":material/link_off:")


def page_title(title: str, sentence: str = "") -> None:
    """A page's first line."""
    st.title(title, anchor=False)
    if sentence:
        st.caption(sentence)


def readable_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """One calm sentence instead of a traceback while the store cannot be read."""

    @functools.wraps(show)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            show(*args, **kwargs)
        except (SQLAlchemyError, OSError) as error:
            log.warning("a page could not be shown: %s", error)
            cause = str(getattr(error, "orig", None) or error)
            st.error(
                f"The store cannot be reached ({as_text(cause)}). Training goes on without it; "
                "this page shows everything again as soon as it answers.",
                icon=":material/cloud_off:",
            )

    return guarded
