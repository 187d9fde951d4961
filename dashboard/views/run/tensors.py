"""The tensors of a run's checkpoints, and how far two differ: read by a node that the visitor asks, and drawn."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.components.browser import tensors as draw
from dashboard.service import service
from dashboard.views.layout import actions, permissions
from dashboard.views.run.dialogs import checkpoint_line
from dashboard.views.run.task_progress import task_progress
from domain.checkpoint_use.tasks import ENDED_STATES, CheckpointTaskView, TaskKind
from domain.text.formats import as_text
from domain.views import CheckpointView, RunView

ELSEWHERE = "`rankzero checkpoint diff A B` compares checkpoints of two runs."


def tensors(run: RunView, complete: Sequence[CheckpointView]) -> bool:
    """Show the choice of checkpoints and what is known of their tensors; return whether a node still reads them."""
    with st.expander("Tensors", key=f"tensors_{run.id}", on_change="rerun") as opened:
        if not opened.open:
            return False
        chosen, before = _choice(complete)
        task = _newest(run.id, chosen, before)
        if task is None or (task.state in ENDED_STATES and task.state != "succeeded"):
            _offer(run, chosen, before)
        if task is not None:
            _show(run, task)
        return task is not None and task.state not in ENDED_STATES


def _choice(complete: Sequence[CheckpointView]) -> tuple[CheckpointView, CheckpointView | None]:
    """Return the chosen checkpoint, and the one that it is compared with."""
    left, right = st.columns(2)
    chosen = left.selectbox("Checkpoint", complete, format_func=checkpoint_line, key="tensors_of")
    others = [checkpoint for checkpoint in complete if checkpoint.id != chosen.id]
    before = right.selectbox(
        "Compare with", others, index=None, format_func=checkpoint_line, key=f"tensors_before_{chosen.id}",
        placeholder="an earlier one of this run", disabled=not others, help=ELSEWHERE,
    )  # fmt: skip
    return chosen, before


def _newest(run_id: str, chosen: CheckpointView, before: CheckpointView | None) -> CheckpointTaskView | None:
    """Return the newest task that shows the checkpoint, or compares the two."""
    kind, asked = (TaskKind.SHOW, (chosen.id, None)) if before is None else (TaskKind.DIFF, (before.id, chosen.id))
    tasks = service.current().checkpoint_tasks.of_run(run_id, kind)
    return next((task for task in tasks if (task.checkpoint_id, task.other_id) == asked), None)


def _offer(run: RunView, chosen: CheckpointView, before: CheckpointView | None) -> None:
    """Offer to have a node read the checkpoints."""
    help_ = "A node reads it in the run's own Python, on the CPU and at idle priority; the result is kept."
    st.button(
        "Show the tensors" if before is None else "Compare the tensors", icon=":material/play_arrow:",
        key=f"ask_tensors_{chosen.id}_{before.id if before else ''}",
        on_click=_ask, args=(chosen.id, before.id if before else None), **permissions.limits_on(run, help_),
    )  # fmt: skip


@actions.told
def _ask(chosen_id: int, before_id: int | None) -> None:
    tasks = service.current().checkpoint_tasks
    if before_id is None:
        tasks.ask(TaskKind.SHOW, chosen_id)
    else:
        tasks.ask(TaskKind.DIFF, before_id, other_id=chosen_id)


def _show(run: RunView, task: CheckpointTaskView) -> None:
    """Draw the result, or say how far the node is, or why there is none."""
    if task.state == "succeeded":
        draw(task.id, key=f"tensors_result_{task.id}")
    elif task.state == "failed":
        st.error(as_text(task.message or "The node could not read it."))
    elif task.state == "cancelled":
        st.caption("Cancelled.")
    else:
        task_progress(run, task)
