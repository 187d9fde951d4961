"""What all pages share in looks: constant style rules, the colours of states, the banner for trouble."""

from __future__ import annotations

import functools
import html
import logging
import time
from collections.abc import Callable
from typing import Literal, ParamSpec

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from dashboard.service import service
from db.engine import StoreGone
from domain.text.formats import as_text

P = ParamSpec("P")
Colour = Literal["red", "orange", "yellow", "blue", "green", "violet", "gray", "primary"]
log = logging.getLogger(__name__)
ASK_AGAIN_S = 3


def hidden_title(title: str) -> None:
    """A heading for those who listen to the page; who looks at it reads it in the bar."""
    st.html(f'<h1 class="hidden">{html.escape(title)}</h1>')


@st.fragment(run_every=ASK_AGAIN_S)
def warn_of_trouble() -> None:
    """Says on every page, as soon and as long as it is so, why nothing can be stored, and what to do."""
    current = service.current()
    if trouble := current.trouble:
        st.error(
            f"{trouble} Trainings go on; what they write waits on their nodes. What is stored can be read.",
            icon=":material/hard_drive:",
        )
    elif current.files.free_bytes() < 0:
        st.error(
            f"The disk of {as_text(str(current.settings.data))} is nearly full. Trainings go on; what they "
            "write waits on their nodes. Free some space, and everything arrives by itself.",
            icon=":material/hard_drive:",
        )


def readable_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """One calm sentence instead of a traceback while the store cannot be read; for what refreshes itself."""

    @functools.wraps(show)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            show(*args, **kwargs)
        except (SQLAlchemyError, OSError, StoreGone) as error:
            _say_store_is_away(error)

    return guarded


def asked_again_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """The same for a page that does not refresh itself: it is run again until the store answers."""

    @functools.wraps(show)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            show(*args, **kwargs)
        except (SQLAlchemyError, OSError, StoreGone) as error:
            _say_store_is_away(error)
            st.session_state["store_asked_at"] = time.monotonic()
            _ask_again()

    return guarded


def _say_store_is_away(error: Exception) -> None:
    log.warning("a page could not be shown: %s", error)
    cause = str(getattr(error, "orig", None) or error)
    if isinstance(error, StoreGone):  # it does not come back by itself
        st.error(as_text(cause), icon=":material/cloud_off:")
        return
    st.error(
        f"The store cannot be reached ({as_text(cause)}). Training goes on without it; "
        "this page shows everything again as soon as it answers.",
        icon=":material/cloud_off:",
    )


@st.fragment(run_every=ASK_AGAIN_S)
def _ask_again() -> None:
    if time.monotonic() - st.session_state["store_asked_at"] > ASK_AGAIN_S / 2:
        st.rerun()
