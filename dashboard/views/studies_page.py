"""The Studies page: all sweeps and all scaling studies, and the way to start one."""

from __future__ import annotations

import streamlit as st

from dashboard.views.layout import style
from dashboard.views.scaling_page import all_studies
from dashboard.views.sweeps_page import all_sweeps


@style.quiet_without_store
def page() -> None:
    """Show both lists."""
    all_sweeps()
    st.space("small")
    all_studies()
