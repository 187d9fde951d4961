"""What others did to the visitor's runs, shown on every page until the visitor has read it."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, links, style
from db.people import notices
from domain.text.formats import ago, as_text


@style.quiet_without_store
def show() -> None:
    """Show the newest notices, each with the way to its run."""
    current = service.current()
    for notice in notices.unread(current.store):
        with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"notice_{notice.id}"):
            when = ago(notice.at, current.clock())
            st.markdown(f"{as_text(notice.sentence)} :gray[{as_text(when)}]", width="stretch")
            if notice.run_id is not None:
                links.link("run", "Open the run", f"notice_run_{notice.id}", kind="tertiary", id=notice.run_id)
            st.button("Close", key=f"notice_read_{notice.id}", type="tertiary", on_click=_read, args=(notice.id,))


@actions.told
def _read(notice_id: int) -> None:
    notices.read(service.current().store, notice_id)
