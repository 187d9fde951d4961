"""Menus of runs: the files that they can be exported as, and read-only links to them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode, urlsplit

import streamlit as st

from dashboard.cluster.joining import is_loopback
from dashboard.service import service
from dashboard.views.layout import actions
from dashboard.views.layout.permissions import Limits, signed
from db.runs import shared_links
from db.runs.shared_links import LONGEST_DAYS, LinkView
from domain.choices import ExportFormat
from domain.text.formats import SHOWN_ONCE, as_text, clock_minute

MADE, REFUSED = "share_made", "share_refused"
LASTING = {"a day": 1, "a week": 7, "a month": 30, "a year": LONGEST_DAYS}


def share_menu(run_ids: Sequence[str], limits: Limits) -> None:
    """Show the form for a link to these runs, the address of a new one, and all valid ones."""
    with st.popover("Share", icon=":material/link:", type="tertiary", key="share", **limits):
        runs = "this run" if len(run_ids) == 1 else f"these {len(run_ids)} runs"
        st.caption(
            f"Anyone with the link sees the current curves, tables and notes of {runs} without signing in: no code, "
            "no logs, no other run, and nothing can be changed."
        )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox("Valid for", list(LASTING), index=1, key="share_for", width=140)
            st.button(
                "Make a link", type="primary", key=f"share_make_{'_'.join(run_ids)}",
                on_click=actions.attempt, args=(lambda: _make(run_ids), REFUSED),
            )  # fmt: skip
        actions.show(REFUSED)
        valid = {link.id: link for link in _valid(run_ids)}
        new_link: tuple[str, str] | None = st.session_state.get(MADE)
        if new_link is not None and new_link[0] in valid:
            st.code(f"{reachable_origin('share_origin')}/shared/{new_link[1]}", language=None, wrap_lines=True)
            st.caption(f"The address: {SHOWN_ONCE}.")
        with st.container(key="share_links"):
            for link in valid.values():
                _link(link)


def _make(run_ids: Sequence[str]) -> None:
    current = service.current()
    days = LASTING[st.session_state["share_for"]]
    link, token = shared_links.make(current.store, run_ids, days, current.clock())
    st.session_state[MADE] = (link.id, token)


def _valid(run_ids: Sequence[str]) -> list[LinkView]:
    """Return the valid links to the same runs, whatever their order."""
    current = service.current()
    links = shared_links.every(current.store, current.clock())
    return [link for link in links if link.state == "valid" and set(link.runs) == set(run_ids)]


def _link(link: LinkView) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        sentence = f"{link.id}, valid until {clock_minute(link.expires_at)}{signed(link.by)}"
        st.caption(as_text(sentence), width="stretch")
        st.button(
            "Revoke", key=f"share_revoke_{link.id}", type="tertiary",
            on_click=_revoke, args=(link,),
        )  # fmt: skip


def _revoke(link: LinkView) -> None:
    """End a link; ask first if it is another person's."""

    def revoke() -> None:
        current = service.current()
        shared_links.revoke(current.store, link.id, current.clock())

    actions.end_or_ask("link", link.id, link.by, "Revoke", revoke)


ONLY_HERE = "Only this machine can open this address: name the one at which others reach the dashboard."
LISTENS_HERE = " It listens on this machine only: start it with `--host 0.0.0.0`, or put a proxy before it."


def reachable_origin(key: str) -> str:
    """Return the dashboard's address for others; asks for it where the page's works on this machine alone."""
    origin = service.current().settings.public_url or _origin()
    if is_loopback(urlsplit(origin).hostname or ""):
        st.warning(ONLY_HERE + (LISTENS_HERE if is_loopback(service.current().settings.host) else ""))
        placeholder = "https://rankzero.example.com"
        typed = st.text_input("Address for others", key=key, placeholder=placeholder)
        origin = typed.strip() or origin
    return origin.rstrip("/")


def _origin() -> str:
    page = urlsplit(st.context.url or "")
    return f"{page.scheme}://{page.netloc}"


# A menu of the files that runs can be exported as.

FORMATS = {
    ExportFormat.HTML: ("Report", "Curves, differences and notes in one page that opens without Rankzero"),
    ExportFormat.CSV: ("Points as CSV", "Every point of every series"),
    ExportFormat.PARQUET: ("Points as Parquet", "Every point of every series"),
    ExportFormat.JSON: ("Points as JSON", "Every point of every series"),
    ExportFormat.ARCHIVE: (
        "Archive (zip)",
        "Everything, with checkpoints and code, for another installation",
    ),
}


def export_menu(run_ids: Sequence[str], have_ended: bool) -> None:
    """Show links to the server's route; an archive is offered of runs that have ended."""
    with st.popover("Export", icon=":material/ios_share:", type="tertiary", key="export"):
        for kind, (title, explanation) in FORMATS.items():
            if kind != ExportFormat.ARCHIVE or have_ended:
                url = f"/api/export?{urlencode({'runs': ','.join(run_ids), 'format': str(kind)})}"
                key = f"export_{kind}"
                st.link_button(title, url, help=explanation, type="tertiary", width="stretch", key=key)
