"""The script of `st.App`: register the pages and run the requested one."""

from __future__ import annotations

import streamlit as st

from dashboard.colours import MARK
from dashboard.service import service
from dashboard.views import memory, page_list, whole_page
from dashboard.views.layout import actions

service.act_for_visitor()
chosen = st.navigation(list(page_list.pages().values()), position="hidden")
st.set_page_config(page_title=f"{chosen.title} · Rankzero", page_icon=MARK, layout="wide")
page_list.bar()
memory.spare_what_stays()
whole_page.show(chosen.url_path)
actions.show_asked()
