"""The script of `st.App`: register the pages and run the requested one."""

from __future__ import annotations

import streamlit as st

from dashboard.colours import MARK
from dashboard.service import service
from dashboard.views import memory, page_list
from dashboard.views.launch import launch_page
from dashboard.views.layout import actions, notices, style
from dashboard.views.people import no_role

service.act_for_visitor()
chosen = st.navigation(list(page_list.pages().values()), position="hidden")
st.set_page_config(page_title=f"{chosen.title} · Rankzero", page_icon=MARK, layout="wide")
page_list.bar()
memory.spare_what_stays()
style.warn_of_trouble()
notices.show()
if chosen.url_path != "launch":
    launch_page.fill_anew()
if no_role.is_for(chosen.url_path):
    no_role.page()
else:
    if chosen.visibility == "visible":
        st.title(chosen.title, anchor=False)
    elif chosen.title in page_list.HEADED_BY_THEIR_LISTS:
        style.hidden_title(chosen.title)
    chosen.run()
actions.show_asked()
