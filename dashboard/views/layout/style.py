"""Elements that all pages share: hidden titles, the banner for problems, errors of the store."""

from __future__ import annotations

import functools
import html
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, ParamSpec

import streamlit as st
from sqlalchemy import select

from dashboard.components import browser
from dashboard.service import service
from dashboard.views.layout import actions
from db.engine import StoreGone
from domain.text.formats import as_text


@contextmanager
def explained(key: str, text: str | None, width: Literal["stretch", "content"] = "stretch") -> Iterator[None]:
    """Explain an input beside it while it has the focus or the pointer: a "?" would be one more stop of the Tab key."""
    with st.container(key=f"explained_{key}", width=width):
        yield
        if text:
            st.caption(text)


P = ParamSpec("P")
Colour = Literal["red", "orange", "yellow", "blue", "green", "violet", "gray", "primary"]
log = logging.getLogger(__name__)
ASK_AGAIN_S, LOOK_AT_DISK_S = 3, 15
REFRESH, STORE_IS_AWAY = "refresh_within_s", "store_is_away"


def hidden_title(title: str) -> None:
    """Add a heading for screen readers; the list or study below shows what it is."""
    st.html(f'<h1 class="hidden">{html.escape(title)}</h1>')


@contextmanager
def kept_fresh() -> Iterator[None]:
    """Have the page drawn again as often as its parts ask by `refresh_within`, and when the server's trouble changes.

    The browser asks, while the page is seen: Streamlit's own timers (`run_every`) outlive their page."""
    st.session_state[REFRESH] = None
    try:
        yield
        browser.refresh(st.session_state[REFRESH], service.current().trouble or "")
    finally:
        st.session_state[browser.IS_REDRAW] = False


def refresh_within(seconds: float) -> None:
    """Have the page drawn again within that time; of several times the shortest counts."""
    asked = st.session_state[REFRESH]
    st.session_state[REFRESH] = seconds if asked is None else min(asked, seconds)


def warn_of_trouble() -> None:
    """Show on every page why nothing can be stored, and what to do, as long as that lasts."""
    current = service.current()
    away = _why_away()
    st.session_state[STORE_IS_AWAY] = away is not None
    if away is not None:
        _say_store_is_away(away)
    elif trouble := current.trouble:
        st.error(
            f"{trouble} Training continues; its output waits on the nodes. Stored data can be read.",
            icon=":material/hard_drive:",
        )
    elif current.files.free_bytes() < 0:  # no trouble of which the browser hears
        refresh_within(LOOK_AT_DISK_S)
        st.error(
            f"The disk of {as_text(str(current.settings.data))} is nearly full. Training continues; its "
            "output waits on the nodes and is sent as soon as there is space.",
            icon=":material/hard_drive:",
        )
    elif (forecast := current.disk_forecast.now(with_deletable=False)).is_soon:
        st.warning(
            f"The disk for checkpoints: {as_text(forecast.sentence)}. A run's Checkpoints tab says what could go, and "
            "sets a rule for what is kept.",
            icon=":material/hard_drive:",
        )


def quiet_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """Leave it to the banner of the page to say that the store cannot be read; the page is drawn again until it can."""

    @functools.wraps(show)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            show(*args, **kwargs)
        except actions.AWAY as error:
            if service.current().store.trouble is None:  # else it is logged, once
                log.warning("a page could not be shown: %s", error)
            if not st.session_state.get(STORE_IS_AWAY):  # else the banner says so
                _say_store_is_away(error)

    return guarded


def _why_away() -> Exception | None:
    """Why the store cannot be read at all."""
    try:
        with service.current().store.read() as session:
            session.execute(select(1))
    except actions.AWAY as error:
        return error
    return None


def _say_store_is_away(error: Exception) -> None:
    refresh_within(ASK_AGAIN_S)
    cause = str(getattr(error, "orig", None) or error)
    if isinstance(error, StoreGone):  # it does not recover on its own
        st.error(as_text(cause), icon=":material/cloud_off:")
        return
    st.error(
        f"The store cannot be reached ({as_text(cause)}). Training continues without it; "
        "this page recovers as soon as the store answers.",
        icon=":material/cloud_off:",
    )
