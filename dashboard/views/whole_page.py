"""A page below the bar, which a click and its refreshes draw again as one."""

from __future__ import annotations

import streamlit as st

from dashboard.page_titles import IN_BAR, TITLES
from dashboard.views import page_list
from dashboard.views.launch import launch_page
from dashboard.views.layout import actions, notices, style, visitor
from dashboard.views.people import no_role


@visitor.fragment
def show(path: str) -> None:
    """Draw the page at this path.

    It is the only fragment beside dialogs: the rerun of a fragment can lose the last messages of the run before
    (streamlit/streamlit#9921), and this one draws again whatever they drew. `benchmarks/busy_clicks.py` tries it."""
    with style.kept_fresh():
        style.warn_of_trouble()
        notices.show()
        if path != "launch":
            launch_page.fill_anew()
        if no_role.is_for(path):
            no_role.page()
        else:
            _titled(path)
    actions.pass_on_asked()


def _titled(path: str) -> None:
    address = f"/{path}"
    if address in IN_BAR:
        st.title(TITLES[address], anchor=False)
    elif address in page_list.HEADED_BY_THEIR_LISTS:
        style.hidden_title(TITLES[address])
    _, draw = page_list.SHOWN[path]
    draw()
