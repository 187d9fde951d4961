"""The Studies page: all sweeps and all scaling studies, and the way to start one."""

from __future__ import annotations

import streamlit as st

from dashboard.views.layout import style
from dashboard.views.scaling import scaling_page
from dashboard.views.sweeps import sweeps_page


@style.quiet_without_store
def page() -> None:
    """Show both lists."""
    sweeps_page.all_sweeps()
    st.space("small")
    scaling_page.all_studies()
