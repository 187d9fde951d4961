"""The actions of a run that somebody else started: it can be stopped from here, and started again where it ran."""

from __future__ import annotations

import streamlit as st

from dashboard.views.layout import actions, permissions, visitor
from dashboard.views.run import dialogs
from domain.people.roles import Action
from domain.text.formats import as_text
from domain.views import RunView
from domain.watched_views import WatchedView

AGAIN = "Start again"


def start_or_stop(run: RunView, watched: WatchedView) -> None:
    """Show Stop while it trains, greyed out where it may only be looked at, and how to start it again."""
    if not run.state.is_terminal:
        is_alone = watched.look_only and not run.lost_contact
        why = as_text(watched.look_only_words) if is_alone else None
        is_stopping = run.stop_requested_at is not None
        limits = permissions.limits(Action.STOP, run.project, run.by, why, disabled=is_stopping or is_alone)
        if st.button("Stop", icon=":material/stop_circle:", key=f"stop_{run.id}", **limits):
            actions.ask(dialogs.stop, run)
    if st.button(AGAIN, icon=":material/terminal:", key=f"start_again_{run.id}"):
        actions.ask(again, watched)


@visitor.dialog("Start it again", icon=":material/terminal:")
def again(watched: WatchedView) -> None:
    """Show the command to copy: it is typed where the run was started, not here."""
    if watched.again is None:
        st.markdown(f"It watched itself, in a notebook or script: run that again on {as_text(watched.host)}.")
        return
    st.markdown(f"It ran on {as_text(watched.origin)}. Type there:")
    st.code(watched.again, language="bash", wrap_lines=True)
    if watched.scheduler:
        st.caption(as_text(f"{watched.scheduler} started it: or submit its job again, with this command in it."))
    st.caption("Its latest checkpoint is filled in where the command has an option for it, or `{resume}`.")
