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
from dashboard.views.layout import actions, visitor
from db.engine import StoreGone
from domain.clock import SYSTEM_CLOCK
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
ASK_AGAIN_S = 3
LOOK_FOR_TROUBLE_S = 15


def hidden_title(title: str) -> None:
    """Add a heading for screen readers; the list or study below shows what it is."""
    st.html(f'<h1 class="hidden">{html.escape(title)}</h1>')


def refreshed(every_s: float) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a part of a page a fragment that its browser asks for again every `every_s` seconds.

    Streamlit's own timers (`run_every`) go on while a page is left; what they ask for then leaves a blank page."""

    def decorate(show: Callable[P, None]) -> Callable[P, None]:
        @visitor.fragment
        @functools.wraps(show)
        def part(*args: P.args, **kwargs: P.kwargs) -> None:
            actions.pass_on_asked()
            show(*args, **kwargs)
            browser.refresh(_refresh_key(show), every_s)

        return part

    return decorate


def _refresh_key(show: Callable[P, None]) -> str:
    """Return a key of one part of the pages; Streamlit allows no `__` in it."""
    return f"refresh_{show.__module__}_{show.__name__.strip('_')}".replace(".", "_")


@refreshed(LOOK_FOR_TROUBLE_S)
def warn_of_trouble() -> None:
    """Show on every page why nothing can be stored, and what to do, as long as that lasts."""
    current = service.current()
    away = _why_away()
    st.session_state["store_is_away"] = away is not None
    if away is not None:
        _say_store_is_away(away)
    elif trouble := current.trouble:
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


def quiet_without_store(show: Callable[P, None]) -> Callable[P, None]:
    """Leave it to the banner of the page to say that the store cannot be read, and rerun the page until it can."""

    @functools.wraps(show)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            show(*args, **kwargs)
        except actions.AWAY as error:
            if service.current().store.trouble is None:  # else it is logged, once
                log.warning("a page could not be shown: %s", error)
            _leave_to_banner(error, f"{_refresh_key(show)}_away")

    return guarded


def _leave_to_banner(error: Exception, key: str) -> None:
    """Say only what the banner does not: that this part alone cannot be read."""
    if _why_away() is None:
        _say_store_is_away(error)
    elif not st.session_state.get("store_is_away"):
        st.rerun()
    st.session_state["store_asked_at"] = SYSTEM_CLOCK.now()
    _ask_again(key)


def _why_away() -> Exception | None:
    """Why the store cannot be read at all."""
    try:
        with service.current().store.read() as session:
            session.execute(select(1))
    except actions.AWAY as error:
        return error
    return None


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


@visitor.fragment
def _ask_again(key: str) -> None:
    browser.refresh(key, ASK_AGAIN_S)
    if SYSTEM_CLOCK.now() - st.session_state["store_asked_at"] > ASK_AGAIN_S / 2:
        st.rerun()
