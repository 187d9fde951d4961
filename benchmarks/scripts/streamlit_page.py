"""The peer of the live run page: series in Streamlit's own charts, in a fragment that runs each second.

streamlit run streamlit_page.py -- FILE NAME …, where FILE holds rows of doubles: the step and a value of each series.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import streamlit as st

FILE, *NAMES = sys.argv[1:]


@st.fragment(run_every=1.0)
def charts() -> None:
    """Draw all points; the caption says which step is the newest."""
    rows = np.fromfile(FILE).reshape(-1, 1 + len(NAMES))
    st.caption(str(int(rows[-1, 0])))
    for number, name in enumerate(NAMES, 1):
        st.line_chart(pd.DataFrame({name: rows[:, number]}, index=rows[:, 0]))


charts()
