"""Links between the pages, and their addresses: for the keyboard and Ctrl-click."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

import streamlit as st

from dashboard.components.browser import page_link
from dashboard.views.layout import permissions

Kind = Literal["primary", "secondary", "tertiary"]


def address(page: str, **query: str) -> str:
    """Return a page's relative address: `run?id=…`, and `./` for the table of runs."""
    path = "./" if page == "runs" else page
    return f"{path}?{urlencode(query)}" if query else path


def link(
    page: str,
    label: str,
    key: str,
    icon: str | None = None,
    kind: Kind = "secondary",
    help: str | None = None,
    **query: str,
) -> None:
    """Show a link that looks like a button; a plain click follows it within the session.

    `icon` is one of elements.js."""
    page_link(address(page, **query), key, label=label, icon=icon, kind=kind, help=help)


def launch_again(
    run_id: str,
    label: str,
    key: str,
    icon: str,
    kind: Kind = "secondary",
    help: str | None = None,
    with_fix: bool = False,
) -> None:
    """Show a link to the form filled with a run's spec, optionally with its fix."""
    fix_query = {"fix": "1"} if with_fix else {}
    link("launch", label, key, icon, kind, help, **{"from": run_id}, **fix_query)


def list_head(title: str, question: str, label: str, new: str) -> None:
    """Show the heading of a list of studies, what they answer, and the link to the form that starts one."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"{new}_list_head"):
        st.header(title, anchor=False, width="content")
        st.markdown(question, width="content")
        if permissions.may_launch():
            link("launch", label, f"{new}_new", new=new)


def nothing_listed(purpose: str, how: str, example: str) -> None:
    """Show what an empty list is for and, to those who may launch, how its first is started, with a command."""
    may_launch = permissions.may_launch()
    st.markdown(f"{purpose} {how if may_launch else 'There is none that you may see.'}")
    if may_launch:
        st.code(example, language=None, wrap_lines=True)


def nothing_here(title: str, sentence: str) -> None:
    """Show that the address names nothing, and the way to the runs."""
    with st.container(border=True, horizontal_alignment="center"):
        st.space("medium")
        st.title(title, anchor=False, text_alignment="center")
        st.markdown(sentence, text_alignment="center")
        link("runs", "All runs", "all_runs", "list")
        st.space("medium")


def go(page: str, **query: str) -> None:
    """Have the browser open a page as a click on a link does, so that no rerun of this page can come in between."""
    page_link(address(page, **query), "go")
