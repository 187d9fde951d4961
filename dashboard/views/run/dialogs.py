"""Dialogs that confirm stopping or deleting a run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import asking, links
from domain.messages import State
from domain.text.formats import as_text, count, number, plural, size
from domain.views import CheckpointView, RunView


@st.dialog("Stop this run?", icon=":material/stop_circle:")
def stop(run: RunView) -> None:
    """Confirm a stop, which can be followed by a resume."""
    if run.state == State.QUEUED:
        st.markdown(f"**{as_text(run.name)}** has not started yet; it will leave the queue.")
    else:
        st.markdown(
            f"Every rank of **{as_text(run.name)}** gets SIGTERM and has {run.spec.stop_grace_s:g} s to "
            "save a checkpoint and exit; then remaining processes are killed. The run can be resumed later."
        )
    asking.confirm("Stop the run", "Keep it going", lambda: service.current().stop(run.id))


@st.dialog("Delete this run?", icon=":material/delete:")
def delete(run: RunView, checkpoints: Sequence[CheckpointView]) -> None:
    """Confirm the deletion of everything that the server stores of a run."""
    if not run.state.is_terminal:
        st.markdown(f"**{as_text(run.name)}** is {run.state.value}. Stop it first, then delete it.")
        return
    stored_bytes = sum(checkpoint.received_bytes for checkpoint in checkpoints)
    st.markdown(
        f"Its curves, logs and {plural(len(checkpoints), 'checkpoint')} ({size(stored_bytes)}) are permanently "
        "removed from the server. Files on the nodes stay there."
    )
    asking.confirm("Delete for good", "Keep it", lambda: service.current().delete(run.id), lambda: links.go("runs"))


def describe(checkpoint: CheckpointView) -> str:
    """Return a checkpoint in one line: its name, step, loss and marks."""
    parts = [checkpoint.name]
    if checkpoint.step is not None:
        parts.append(f"step {count(checkpoint.step)}")
    if checkpoint.loss is not None:
        parts.append(f"loss {number(checkpoint.loss)}")
    parts += [mark for mark, is_so in (("latest", checkpoint.latest), ("best", checkpoint.best)) if is_so]
    return " · ".join(parts)
