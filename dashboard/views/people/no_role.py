"""The page for people without a role: it names who gives one."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, permissions, style
from domain.text.formats import as_list, as_text

OPEN_PAGES = frozenset({"account", "people"})
"""Those that need no role."""
ASK_AGAIN_S = 5


def is_for(page: str) -> bool:
    """Whether the visitor has no role anywhere, and the page at this address needs one."""
    try:
        rights = permissions.visitor()
    except actions.AWAY:
        return False
    return page not in OPEN_PAGES and rights.by is not None and not (rights.everywhere or rights.in_projects)


@style.quiet_without_store
def page() -> None:
    """Say who gives roles; the page itself opens once the visitor has one."""
    style.refresh_within(ASK_AGAIN_S)
    givers = as_list([f"**{as_text(name)}**" for name in service.current().people.managers()])
    with st.container(border=True, horizontal_alignment="center", key="no_role"):
        st.space("medium")
        st.title("You have no role", anchor=False, text_alignment="center")
        st.markdown(
            f"You are signed in as **{as_text(permissions.visitor().by)}**. What you see here depends on your role; "
            f"roles are given by {givers}. This page opens by itself once you have one.",
            text_alignment="center",
        )
        st.space("medium")
