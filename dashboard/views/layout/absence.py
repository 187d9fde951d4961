"""What stands in place of a page whose object is not there for the visitor, or is not any more."""

from __future__ import annotations

import streamlit as st

from dashboard.views.layout import links, permissions
from domain.text.formats import as_text

SEEN = "seen_"


def seen(name: str, project: str) -> None:
    """Remember that this session has seen an object of a project: it may be told when it loses its role there."""
    st.session_state[f"{SEEN}{name}"] = project


def show(name: str, title: str, sentence: str) -> None:
    """Show that there is no such object, or that the visitor lost the role with which this session saw it."""
    project = st.session_state.get(f"{SEEN}{name}")
    if project is not None and not permissions.visitor().sees(project):
        title = "You no longer have a role here"
        sentence = f"This is in project **{as_text(project)}**: ask an admin of it for a role."
    links.nothing_here(title, sentence)
