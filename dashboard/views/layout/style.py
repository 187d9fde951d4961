"""Elements that all pages share: hidden titles, the banner for problems, errors of the store."""

from __future__ import annotations

import functools
import html
import logging
import math
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
LOOK_FOR_TROUBLE_S = 15


def hidden_title(title: str) -> None:
    """Add a heading for screen readers; the bar shows it visibly."""
    st.html(f'<h1 class="hidden">{html.escape(title)}</h1>')


@st.fragment(run_every=LOOK_FOR_TROUBLE_S)
def warn_of_trouble() -> None:
    """Show on every page why nothing can be stored, and what to do, as long as that lasts."""
    current = service.current()
    if trouble := current.trouble:
        st.error(
            f"{trouble} Training continues; its output waits on the nodes. Stored data can be read.",
            icon=":material/hard_drive:",
        )
    elif current.files.free_bytes() < 0:
        st.error(
            f"The disk of {as_text(str(current.settings.data))} is nearly full. Training continues; its "
            "output waits on the nodes and is sent as soon as there is space.",
            icon=":material/hard_drive:",
        )


def readable_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """Show a sentence instead of a traceback while the store cannot be read; for self-refreshing fragments."""
    return _guarded(show, _say_store_is_away)


def left_to_page_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """Run the page anew while the store cannot be read, so that one sentence at its top says so; for its parts."""
    return _guarded(show, _leave_to_page)


def asked_again_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """Show a sentence while the store cannot be read, and rerun the page until it answers."""
    return _guarded(show, _say_and_ask_again)


def _guarded(show: Callable[P, None], instead: Callable[[Exception], None]) -> Callable[P, None]:
    @functools.wraps(show)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            show(*args, **kwargs)
        except (SQLAlchemyError, OSError, StoreGone) as error:
            log.warning("a page could not be shown: %s", error)
            instead(error)

    return guarded


def _say_and_ask_again(error: Exception) -> None:
    _say_store_is_away(error)
    st.session_state["store_asked_at"] = time.monotonic()
    _ask_again()


def _leave_to_page(error: Exception) -> None:
    """Nothing where the page says it, a rerun where it does not, and a sentence where only this part cannot be read."""
    state, now = st.session_state, time.monotonic()
    if now - state.get("store_asked_at", -math.inf) < ASK_AGAIN_S:
        return
    if isinstance(error, OSError) or now - state.get("store_left_at", -math.inf) < 2 * ASK_AGAIN_S:
        _say_store_is_away(error)
        return
    state["store_left_at"] = now
    st.rerun()


def _say_store_is_away(error: Exception) -> None:
    cause = str(getattr(error, "orig", None) or error)
    if isinstance(error, StoreGone):  # it does not recover on its own
        st.error(as_text(cause), icon=":material/cloud_off:")
        return
    st.error(
        f"The store cannot be reached ({as_text(cause)}). Training continues without it; "
        "this page recovers as soon as the store answers.",
        icon=":material/cloud_off:",
    )


@st.fragment(run_every=ASK_AGAIN_S)
def _ask_again() -> None:
    if time.monotonic() - st.session_state["store_asked_at"] > ASK_AGAIN_S / 2:
        st.rerun()
