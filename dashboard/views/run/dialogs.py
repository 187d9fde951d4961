"""What is asked before a run is stopped, resumed or deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import links
from db.records.exceptions import NoSuchNode, NoSuchRun, WrongState
from domain.errors import InvalidRequest
from domain.messages import State
from domain.text.formats import as_text, count, number, plural, size
from domain.views import CheckpointView, RunView


@st.dialog("Stop this run?", icon=":material/stop_circle:")
def stop(run: RunView) -> None:
    """Stopping cannot be undone, but resumed."""
    if run.state == State.QUEUED:
        st.markdown(f"**{as_text(run.name)}** has not started yet; it leaves the queue.")
    else:
        st.markdown(
            f"Every rank of **{as_text(run.name)}** gets SIGTERM and has {run.spec.stop_grace_s:g} s to "
            "save a checkpoint and leave; what still runs then is killed. It can be resumed later."
        )
    if confirmed("Stop the run", "Keep it going", lambda: service.current().stop(run.id)):
        st.rerun()


@st.dialog("Resume this run", icon=":material/resume:")
def resume(run: RunView, checkpoints: Sequence[CheckpointView]) -> None:
    """The same settings again, from a checkpoint of choice."""
    complete = [checkpoint for checkpoint in checkpoints if checkpoint.complete]
    if complete:
        st.selectbox("From checkpoint", complete, format_func=describe, key="resume_from")
    else:
        st.markdown("It has no complete checkpoint, so it starts from the beginning.")
    st.caption(f"Attempt {run.attempt + 1} of this run opens, with the settings it had.")
    if confirmed("Resume it", "Not now", lambda: _resume(run.id)):
        st.rerun()


@st.dialog("Delete this run?", icon=":material/delete:")
def delete(run: RunView, checkpoints: Sequence[CheckpointView]) -> None:
    """Everything the server has of it goes."""
    if not run.state.is_terminal:
        st.markdown(f"**{as_text(run.name)}** is {run.state.value}. Stop it first, then delete it.")
        return
    stored_bytes = sum(checkpoint.received_bytes for checkpoint in checkpoints)
    st.markdown(
        f"Its curves, logs and {plural(len(checkpoints), 'checkpoint')} ({size(stored_bytes)}) are permanently "
        "removed from the server. Files on the nodes stay there."
    )
    if confirmed("Delete for good", "Keep it", lambda: service.current().delete(run.id)):
        links.go("runs")


def describe(checkpoint: CheckpointView) -> str:
    """A checkpoint in one line: its name and what tells it from the others."""
    parts = [checkpoint.name]
    if checkpoint.step is not None:
        parts.append(f"step {count(checkpoint.step)}")
    if checkpoint.loss is not None:
        parts.append(f"loss {number(checkpoint.loss)}")
    parts += [word for word, is_so in (("latest", checkpoint.latest), ("best", checkpoint.best)) if is_so]
    return " · ".join(parts)


def _resume(run_id: str) -> None:
    chosen: CheckpointView | None = st.session_state.get("resume_from")
    service.current().resume(run_id, str(chosen.id) if chosen else None)


def confirmed(yes: str, no: str, act: Callable[[], object]) -> bool:
    """Yes or no; true once the act is done. What forbids it is said in the dialog."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button(no):
            st.rerun()
        clicked = st.button(yes, type="primary", on_click=_try, args=(act,))
    error = st.session_state.pop("dialog_refused", None)
    if error is not None:
        st.error(as_text(error))
    return clicked and error is None


def _try(act: Callable[[], object]) -> None:
    try:
        act()
    except (InvalidRequest, WrongState, NoSuchRun, NoSuchNode) as error:
        st.session_state["dialog_refused"] = str(error)
