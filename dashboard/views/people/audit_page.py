"""The Audit page: who did what, from where and when, newest first; for admins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import links, permissions, style
from dashboard.views.layout.tables import Markup, show_list
from db.people import audit
from db.people.audit import AuditFilter
from domain.people.audit import AuditAction, AuditEntryView, actor, columns_of, details
from domain.people.roles import Action
from domain.text.formats import ago, as_text, clock_time

ANYBODY, ANYTHING = "anybody", "anything"
SINCE = {"an hour ago": 3600.0, "a day ago": 86_400.0, "a week ago": 7 * 86_400.0, "a month ago": 31 * 86_400.0,
         "the start": None}  # fmt: skip
SHOWN = 100
RUN = re.compile(r"\brun ([a-z0-9]{10})\b")
REFRESH_S = 15
LIMIT = "audit_limit"


@style.quiet_without_store
def page() -> None:
    """Show the filters and the entries, or who may read them."""
    st.title("Audit", anchor=False)
    if (refusal := permissions.visitor().refusal_anywhere(Action.AUDIT)) is not None:
        st.markdown(as_text(refusal))
        links.link("people", "Who the admins are", "audit_people")
        return
    _filters()
    _entries()


def _filters() -> None:
    store = service.current().store
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Person", [ANYBODY, *audit.signers(store)], key="audit_by", width=200)
        st.selectbox("Action", [ANYTHING, *AuditAction], key="audit_action", format_func=_in_words, width=220)
        st.selectbox("Since", list(SINCE), index=2, key="audit_since", width=160)
        query = urlencode({name: value for name, value in vars(_chosen()).items() if value is not None})
        st.link_button(
            "As JSON lines", f"/api/audit.jsonl?{query}", icon=":material/download:", type="tertiary", key="audit_file"
        )


def _chosen() -> AuditFilter:
    state = st.session_state
    by, action, since = state["audit_by"], state["audit_action"], SINCE[state["audit_since"]]
    return AuditFilter(
        by=None if by == ANYBODY else by,
        action=None if action == ANYTHING else AuditAction(action),
        since=None if since is None else round(service.current().clock() - since),
    )


@style.quiet_without_store
def _entries() -> None:
    style.refresh_within(REFRESH_S)
    current = service.current()
    limit = st.session_state.setdefault(LIMIT, SHOWN)
    entries = audit.entries(current.store, _chosen(), limit + 1)
    if not entries:
        st.caption("No entry matches these filters.")
        return
    show_list("audit", columns_of(current.clock()), entries[:limit], MARKUP)
    if len(entries) > limit:
        st.button("Show more", key="audit_more", on_click=_show_more)


def _show_more() -> None:
    st.session_state[LIMIT] += 4 * SHOWN


def _when(entry: AuditEntryView) -> Markup:
    since = ago(entry.at, service.current().clock())
    return Markup(f":small[{as_text(since)}] :gray[:small[{as_text(clock_time(entry.at)[:-3])}]]")


def _actor(entry: AuditEntryView) -> Markup:
    return Markup(as_text(actor(entry)) + (f" :gray[{as_text(entry.via)}]" if entry.via else ""))


def _in_words(action: str) -> str:
    return action.replace("-", " ")


def _object(entry: AuditEntryView) -> Markup:
    """The object, with the run in it as a link, and what else is known of it."""
    text = as_text(entry.object)
    if match := RUN.search(entry.object):
        address = links.address("run", id=match[1])
        text = text.replace(match[0], f"[{match[0]}]({address})")
    detail = details(entry)
    return Markup(f"{text} :gray[{as_text(detail)}]" if detail else text)


MARKUP: Mapping[str, Callable[[AuditEntryView], object]] = {
    "when": _when, "person": _actor, "action": lambda entry: _in_words(entry.action), "what": _object,
}  # fmt: skip
