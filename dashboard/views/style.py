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

from dashboard import service
from dashboard.views.formats import as_text
from db.engine import StoreGone
from db.states import State

P = ParamSpec("P")
Colour = Literal["red", "orange", "yellow", "blue", "green", "violet", "gray", "primary"]
log = logging.getLogger(__name__)
ASK_AGAIN_S = 3

STATE_PILLS = {
    State.QUEUED: "#e0b12d80",
    State.STARTING: "#9a6ae080",
    State.RUNNING: "#3f7cf080",
    State.STOPPING: "#ee8a3380",
    State.SUCCEEDED: "#2ea86580",
    State.FAILED: "#f0666b80",
    State.STOPPED: "#8a90a380",
}
"""Backgrounds of the states in tables: half transparent, so that they suit light and dark."""

_STYLE = """<style>
footer, [data-testid="stStatusWidget"] {display: none}
.stApp [data-stale="true"] {opacity: 1}
[data-testid="stHeader"] {display: none}
[data-testid="stElementContainer"]:has(h1.hidden) {position: absolute}
h1.hidden {position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%)}
[data-testid="stMainBlockContainer"] {padding: 4.5rem 1.75rem 3rem}
[data-testid="stLayoutWrapper"]:has(> .st-key-bar) {position: absolute}
.st-key-bar {position: fixed; inset: 0 0 auto 0; height: 3.25rem; padding: 0 1.75rem; z-index: 95; flex-wrap: nowrap;
 background: var(--page); border-bottom: 1px solid var(--line)}
.st-key-bar .logo {display: flex; align-items: center; gap: .4rem; margin-right: .5rem; font-size: 1.1rem;
 font-weight: 650; color: var(--accent)}
.st-key-bar [data-testid="stElementContainer"]:last-child {margin-left: auto}
.st-key-bar .sign-out {padding: .25rem .6rem; border: 1px solid transparent; border-radius: .45rem; background: none;
 color: inherit; font: inherit; font-size: .93rem; white-space: nowrap; cursor: pointer}
.st-key-bar .sign-out:is(:hover, :focus-visible) {border-color: var(--line); background: var(--card)}
@media (max-width: 640px) {
 [data-testid="stMainBlockContainer"] {padding-left: .75rem; padding-right: .75rem}
 .st-key-bar {padding: 0 .75rem}
 .st-key-bar .logo {margin-right: 0}
 .st-key-bar :is(.logo span, [data-testid="stIconMaterial"]) {display: none}
}
[data-testid="stMarkdownContainer"] table {width: 100%; font-size: .9rem}
[data-testid="stMarkdownContainer"] :is(td, th) {border-width: 0 0 1px 0; padding: .4rem .6rem}
[data-testid="stMarkdownContainer"] th {font-weight: 550; opacity: .7}
.st-key-run_head {min-height: 9.41rem}
@media (max-width: 912px) {.st-key-run_head {min-height: 13.72rem}}
.st-key-table_checkpoints [data-testid="stMarkdownContainer"] {overflow-x: auto}
.st-key-table_checkpoints td {white-space: nowrap}
.st-key-table_checkpoints td:first-child {white-space: normal; overflow-wrap: anywhere; min-width: 14rem}
.st-key-node_details {position: fixed; top: 3.75rem; right: 0; bottom: 0; width: min(27rem, 100vw); z-index: 90;
 overflow-y: auto; padding: 1rem 1.25rem 2rem; background: light-dark(#ffffff, #12141c);
 border-left: 1px solid rgb(128 128 128 / .25); box-shadow: -8px 0 24px rgb(0 0 0 / .12)}
.st-key-table_node_facts thead {display: none}
.st-key-table_node_facts td {overflow-wrap: anywhere}
.st-key-table_node_facts td:first-child {white-space: nowrap; vertical-align: top; opacity: .7}
[data-testid="stLayoutWrapper"]:has(> .st-key-launch_meaning) {position: sticky; top: 4.5rem}
.st-key-launch_meaning {max-height: calc(100vh - 5.5rem); overflow-y: auto}
.st-key-launch_room p, .st-key-launch_guess p {font-size: .88rem}
[class*="st-key-refusal_"] p {font-size: .8rem; line-height: 1.25; margin-top: -.6rem}
</style>"""


def apply() -> None:
    """Constant rules only; nothing a person wrote ever reaches them."""
    st.html(_STYLE)


def hidden_title(title: str) -> None:
    """A heading for those who listen to the page; who looks at it reads it in the bar."""
    st.html(f'<h1 class="hidden">{html.escape(title)}</h1>')


def warn_of_full_disk() -> None:
    """Says on every page that the dashboard's disk is full, what that means and what to do."""
    current = service.current()
    if current.files.free_bytes() < 0:
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
