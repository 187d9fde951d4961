"""The right end of the bar: Sign out for one person alone, a menu with the person's name where there are several."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import permissions
from dashboard.views.layout.actions import AWAY
from domain.people.rights import OWNER
from domain.people.roles import Action
from domain.text.formats import as_text

SIGN_OUT = '<button type="button" class="sign-out">Sign out</button>'


def show(pages: Mapping[str, st.Page]) -> None:
    """Show it in the bar."""
    with st.container(key="bar_person", horizontal=True, vertical_alignment="center", gap="xxsmall", width="content"):
        if _is_one_alone():
            st.page_link(pages["account"], width="content")
            st.html(SIGN_OUT, width="content")
            return
        rights = permissions.visitor()
        with st.popover(as_text(rights.by or OWNER), icon=":material/person:", type="tertiary", key="person"):
            st.page_link(pages["account"])
            st.page_link(pages["people"])
            if rights.refusal_anywhere(Action.AUDIT) is None:
                st.page_link(pages["audit"])
            st.html(SIGN_OUT)


def _is_one_alone() -> bool:
    try:
        return service.current().people.is_one_alone()
    except AWAY:
        return True
