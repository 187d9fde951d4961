"""Deleted runs: the message after a deletion, with an undo button, the list of all, and the page of a deleted run."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, permissions, visitor
from dashboard.views.run.dialogs import DELETED
from dashboard.views.run.tabs import browser_zone
from db.runs.deletion import DeletedRun
from domain.people.roles import Action
from domain.text.formats import ago, as_text, clock_time, day, size

SHOWN = "show_deleted_runs"


def show() -> None:
    """Show what was deleted last, until it is undone or closed."""
    actions.show(SHOWN)
    if DELETED in st.session_state:
        _show_last()


def has_some() -> bool:
    """Whether there are deleted runs that the visitor may see."""
    return service.current().deletions.deleted() != []


def show_button() -> None:
    """Show the button that lists the deleted runs, where there are some that the visitor may see."""
    icon = ":material/restore_from_trash:"
    if has_some() and st.button("Deleted", icon=icon, type="tertiary", key="runs_deleted"):
        list_all()


def show_in_place_of(run_id: str) -> bool:
    """Show that a run was deleted, with the way back; returns whether it was, and the visitor may know."""
    run = next((one for one in service.current().deletions.deleted() if one.id == run_id), None)
    if run is None:
        return False
    st.title("This run was deleted", anchor=False)
    actions.show(SHOWN)
    _row(run)
    return True


def _show_last() -> None:
    run_id, name, deletion = st.session_state[DELETED]
    until = deletion.kept_until
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="deleted_last"):
        outcome = f"was deleted. Can be restored until {_day(until)}" if until else "is deleted for good"
        exactly = clock_time(until, browser_zone()) if until else None
        st.markdown(f"**{as_text(name)}** {outcome}.", width="content", help=exactly)
        if until:
            st.button("Undo", key=f"deleted_undo_{run_id}", icon=":material/undo:", on_click=_restore, args=(run_id,))
        st.button("Close", key="deleted_close", type="tertiary", on_click=_forget)


def _day(until: float) -> str:
    return day(until, service.current().clock(), browser_zone())


def _restore(run_id: str) -> None:
    actions.attempt(lambda: service.current().restore(run_id), SHOWN)
    _forget()


def _forget() -> None:
    st.session_state.pop(DELETED, None)


@visitor.dialog("Deleted runs", icon=":material/restore_from_trash:", width="large")
def list_all() -> None:
    """Show the runs that can be restored, each with who deleted it and when its files go."""
    actions.show(SHOWN)
    runs = service.current().deletions.deleted()
    if not runs:
        st.markdown("There are no deleted runs to restore.")
    for run in runs[:MOST]:
        _row(run)
    if len(runs) > MOST:
        st.caption(f"The newest {MOST} of {len(runs)}; `rankzero runs --deleted` lists them all.")


MOST = 50


def _row(run: DeletedRun) -> None:
    deletions, now = service.current().deletions, service.current().clock()
    with st.container(horizontal=True, vertical_alignment="center", key=f"deleted_{run.id}"):
        by = f" by {as_text(run.deleted_by)}" if run.deleted_by else ""
        until = deletions.kept_until(run)
        st.markdown(
            f"**{as_text(run.name)}** ({run.id}, {as_text(run.project)}) · deleted {ago(run.deleted_at, now)}{by} · "
            f"{size(run.size_bytes)} · can be restored until {_day(until)}",
            width="stretch",
            help=clock_time(until, browser_zone()),
        )
        limits = permissions.limits(Action.ACT, run.project, run.by)
        st.button("Restore", key=f"restore_{run.id}", on_click=_restore, args=(run.id,), **limits)
