"""The script given to `st.App`: names the pages and runs the one the browser asks for."""

from __future__ import annotations

import streamlit as st

from dashboard.marks import MARK
from dashboard.views import launch, memory, navigation, style

chosen = st.navigation(list(navigation.pages().values()), position="hidden")
st.set_page_config(page_title=f"{chosen.title} · Rankzero", page_icon=MARK, layout="wide")
navigation.bar()
if chosen.title in navigation.HEADED_BY_BAR:
    style.hidden_title(chosen.title)
memory.spare_what_stays()
style.warn_of_trouble()
if chosen.url_path != "launch":
    launch.fill_anew()
chosen.run()
