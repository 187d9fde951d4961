"""The Search logs page: the runs whose logs contain a text, each with its first matching line."""

from __future__ import annotations

import streamlit as st

from dashboard.components.browser import log_finder
from dashboard.views.layout import links


def page() -> None:
    """Show the search; its text and filter are in the address `logs?q=TEXT&filter=QUERY`."""
    with st.container(horizontal=True, vertical_alignment="center", key="logs_head"):
        st.title("Search logs", anchor=False, width="stretch")
        links.link("runs", "All runs", key="logs_runs", icon="list")
    log_finder(key="log_finder")
