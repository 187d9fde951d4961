"""The choice of an address that is told when the run of the form fails or finishes."""

from __future__ import annotations

from contextlib import suppress

import streamlit as st

from dashboard.alerts.request import addresses, tell_of_end
from dashboard.service import service
from db.records.exceptions import NoSuchAlert

TELL = "launch_tell"


def field() -> None:
    """Offer the addresses that alerts have; nothing where there is none."""
    found = addresses(service.current())
    if st.session_state.get(TELL) not in found:
        st.session_state[TELL] = ""
    if found:
        st.selectbox(
            "Tell when it fails or finishes", ["", *found], key=TELL, width=420,
            format_func=lambda alert_id: found[alert_id] if alert_id else "nobody",
            help="Addresses of the alerts on the Alerts page; two alerts are set for this run.",
        )  # fmt: skip


def launched(run_id: str) -> None:
    """Set the alerts of a run that was just launched."""
    like = st.session_state.get(TELL)
    if like:
        with suppress(NoSuchAlert):  # removed meanwhile
            tell_of_end(service.current(), run_id, like)
