"""The bar of a checkpoint task that a node works on, with its Cancel."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, permissions
from domain.checkpoint_use.tasks import CheckpointTaskView, progress_words
from domain.text.formats import as_text
from domain.views import RunView


def task_progress(run: RunView, task: CheckpointTaskView, subject: str = "") -> None:
    """Show how far the node is; `subject` begins the line."""
    words = progress_words(task.node, task.doing, task.done_bytes, task.total_bytes)
    share = min(1.0, task.done_bytes / task.total_bytes) if task.total_bytes else 0.0
    with st.container(horizontal=True, vertical_alignment="center", key=f"checkpoint_task_{task.id}"):
        st.progress(share, as_text(f"{subject}: {words}" if subject else words))
        st.button(
            "Cancel", key=f"cancel_{task.kind}_{task.id}", **permissions.limits_on(run),
            on_click=actions.told(service.current().checkpoint_tasks.cancel), args=(task.id,),
        )  # fmt: skip
