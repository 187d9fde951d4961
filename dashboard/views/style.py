"""What all pages share in looks: constant style rules, the colours of states, the banner for trouble."""

from __future__ import annotations

import functools
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
[data-testid="stMainBlockContainer"] {padding-left: 1.75rem; padding-right: 1.75rem}
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
_DRAWING = """<g fill="none" stroke="#666df0" stroke-width="2"><circle cx="12" cy="12" r="4" fill="#666df0"/>
<path d="M12 8V3M12 16v5M8 12H3M16 12h5"/><circle cx="12" cy="12" r="10.5" opacity=".45"/></g>"""
MARK = f'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24" viewBox="0 0 24 24">{_DRAWING}</svg>'
"""The icon of the browser's tab. A Material icon here would be fetched from the internet."""
_LOGO = f"""<svg xmlns="http://www.w3.org/2000/svg" width="124" height="24" viewBox="0 0 124 24">{_DRAWING}
<text x="30" y="17.5" font-family="'Source Sans 3','Source Sans Pro',system-ui,sans-serif" font-size="17"
 font-weight="650" fill="#666df0">Rankzero</text></svg>"""


def apply() -> None:
    """Constant rules only; nothing a person wrote ever reaches them."""
    st.html(_STYLE)
    st.logo(_LOGO, size="medium")


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
