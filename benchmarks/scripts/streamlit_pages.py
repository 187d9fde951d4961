"""The peer of the Runs page: all runs of a store in Streamlit's own table, and a page to come from.

streamlit run streamlit_pages.py -- STORE.db
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

import pandas as pd
import streamlit as st

NEWEST_FIRST = """
SELECT runs.id, runs.name, runs.project, attempts.state, runs.created_at
FROM runs JOIN attempts ON attempts.fence = (SELECT max(fence) FROM attempts WHERE run_id = runs.id)
ORDER BY runs.created_at DESC
"""


def nodes() -> None:
    """Show nothing."""
    st.caption("No nodes")


def runs() -> None:
    """Read and show all runs."""
    with closing(sqlite3.connect(sys.argv[1])) as store:
        st.dataframe(pd.read_sql(NEWEST_FIRST, store))


st.navigation([st.Page(nodes, title="Nodes"), st.Page(runs, title="Runs")]).run()
