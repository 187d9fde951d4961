"""The script given to `st.App`: names the pages and runs the one the browser asks for."""

from __future__ import annotations

import streamlit as st

from dashboard.views import launch, memory, navigation, style

st.set_page_config(page_title="Rankzero", page_icon=style.MARK, layout="wide")
style.apply()
chosen = st.navigation(list(navigation.pages().values()), position="top")
memory.spare_what_stays()
style.warn_of_full_disk()
if chosen.url_path != "launch":
    launch.fill_anew()
chosen.run()
