"""The guests on the Nodes page: the hosts of watched runs, on which nothing of ours is placed."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import links, style
from dashboard.views.layout.tables import Markup, show_list
from db.watched import guests
from domain.lists.node_lists import GUESTS
from domain.text.formats import as_text
from domain.watching.views import GuestView

REFRESH_S = 5
MOST = 200


@style.quiet_without_store
def section() -> None:
    """Show the guests, a row for each host and run; nothing where there are none."""
    if not (listed := present()):
        return
    style.refresh_within(REFRESH_S)
    st.subheader("Guests (watched runs)", anchor=False)
    st.caption("Others started these runs. Nothing of ours is placed here, and a guest leaves with its run.")
    show_list("guests", GUESTS, listed[:MOST], {"run": _run})


def present() -> list[GuestView]:
    """The guests whose runs the visitor may see."""
    current = service.current()
    return guests.listed(current.store, current.now_for_contact(), current.settings.lost_after_s)


def _run(guest: GuestView) -> Markup:
    return Markup(f"[{as_text(guest.run)}]({links.address('run', id=guest.run_id)})")
