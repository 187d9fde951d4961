"""Merging on the Checkpoints tab: which checkpoint, in which form, how far its node is, and the proof."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, permissions
from dashboard.views.run.dialogs import checkpoint_line
from dashboard.views.run.task_progress import task_progress
from domain.checkpoint_use.tasks import CheckpointTaskView, MergeFormat, merged_name, proof_words
from domain.text.formats import as_text
from domain.views import CheckpointView, RunView


def merging(run: RunView, complete: Sequence[CheckpointView], merges: Sequence[CheckpointTaskView]) -> None:
    """Offer to merge a checkpoint; show the merges under way, the last one's failure, and the proofs."""
    for task in reversed([task for task in merges if task.ended_at is None]):
        task_progress(run, task, f"Merge of {task.name}")
    sources = [checkpoint for checkpoint in complete if checkpoint.merged_from is None]
    with st.expander("Merge", key="merge"):
        _form(run, sources)
        if merges and merges[0].state == "failed":
            st.warning(as_text(f"{merges[0].name}: {merges[0].message}"), icon=":material/error:")
    if merged := {checkpoint.id: checkpoint for checkpoint in complete if checkpoint.merged_from is not None}:
        _proofs(merged, [task for task in merges if task.merged_id in merged and task.state == "succeeded"])


FORMATS: dict[MergeFormat, str] = {"safetensors": "safetensors", "hf": "Hugging Face folder"}
EXPLAINED: dict[MergeFormat, str] = {
    "safetensors": "All tensors of the model in one file of safetensors",
    "hf": "Shards with an index, and the config and tokenizer that the run saved, as `from_pretrained` loads them",
}
MOST_PROOFS = 5


def _form(run: RunView, sources: Sequence[CheckpointView]) -> None:
    chosen = st.selectbox("Checkpoint", sources, format_func=checkpoint_line, key="merge_of")
    format = st.radio(
        "Format", list(FORMATS), format_func=lambda one: FORMATS[one], horizontal=True, key="merge_format"
    )
    if chosen is None or format is None:
        return
    st.caption(
        f"{EXPLAINED[format]}: {as_text(merged_name(chosen.name, format))}. Names lose `module.` and `_orig_mod.`. "
        "A node does it in the run's own Python, on one core that nothing else needs, and compares the result with "
        "the shards. It is listed as a checkpoint of its own."
    )
    st.button(
        "Merge", icon=":material/merge:", key=f"merge_button_{chosen.id}", **permissions.limits_on(run),
        on_click=actions.told(service.current().checkpoint_tasks.merge), args=(chosen.id, format),
    )  # fmt: skip


def _proofs(merged: dict[int, CheckpointView], tasks: Sequence[CheckpointTaskView]) -> None:
    if not tasks:
        return
    with st.expander("Proof of what was merged", key="merge_proofs"):
        for task in tasks[:MOST_PROOFS]:
            checkpoint = merged[task.merged_id or 0]
            result = service.current().checkpoint_tasks.task(task.id).result or {}
            st.markdown(f"**{as_text(checkpoint.name)}** {as_text(proof_words(result))}")
            st.caption(as_text(" ".join(map(str, result.get("notes", ())))))
