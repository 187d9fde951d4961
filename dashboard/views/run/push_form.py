"""Pushing on the Checkpoints tab: which checkpoint, where to, with which secrets, and how far its node is."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.pushes import asking
from dashboard.service import service
from dashboard.views.layout import actions, links, permissions
from dashboard.views.run.dialogs import checkpoint_line
from dashboard.views.run.task_progress import task_progress
from domain.checkpoint_use.push_target import NEEDED, Kind
from domain.checkpoint_use.tasks import CheckpointTaskView
from domain.text.formats import as_text, plural, size
from domain.views import CheckpointView, RunView


def pushing(run: RunView, complete: Sequence[CheckpointView], pushes: Sequence[CheckpointTaskView]) -> None:
    """Offer to push a checkpoint; show the pushes under way, and how the last one ended."""
    for task in reversed([task for task in pushes if task.ended_at is None]):
        task_progress(run, task, f"Push of {task.name} to {task.options.get('target')}")
    merged_first = sorted(complete, key=lambda checkpoint: checkpoint.merged_from is None)
    with st.expander("Push", key="push"):
        _form(run, merged_first)
        if pushes and pushes[0].ended_at is not None:
            _end(pushes[0])


PLACES: dict[Kind, str] = {"hf": "Hugging Face Hub", "s3": "Bucket"}
PREFIXES: dict[Kind, str] = {"hf": "hf:", "s3": "s3://"}
PLACEHOLDERS: dict[Kind, str] = {"hf": "ORG/NAME", "s3": "BUCKET/PREFIX"}


def _form(run: RunView, complete: Sequence[CheckpointView]) -> None:
    chosen = st.selectbox("Checkpoint", complete, format_func=checkpoint_line, key="push_of")
    kind = st.radio("To", list(PLACES), format_func=lambda one: PLACES[one], horizontal=True, key="push_kind")
    if chosen is None or kind is None:
        return
    typed = st.text_input(
        "Repository" if kind == "hf" else "Bucket and prefix", key=f"push_place_{kind}", max_chars=600,
        placeholder=PLACEHOLDERS[kind], autocomplete="off",
    )  # fmt: skip
    secrets = _secrets(run, kind)
    is_public = kind == "hf" and st.checkbox("Public", key="push_public", help="Everybody can read it there.")
    is_readable = chosen.merged_from is not None or chosen.name.endswith(".safetensors")
    as_saved = not is_readable and st.checkbox(
        "As the training saved it", key="push_as_saved",
        help="Otherwise its merged form is pushed; a hub's readers load that one only.",
    )  # fmt: skip
    st.caption(
        "A node sends it, with a model card: the run, its settings, code and data digests, and the loss curves. What "
        "is there already is not sent again."
    )
    target = f"{PREFIXES[kind]}{typed.strip()}"
    st.button(
        "Push", icon=":material/cloud_upload:", key=f"push_button_{chosen.id}",
        **permissions.limits_on(run, disabled=not typed.strip()),
        on_click=actions.told(_push), args=(chosen.id, target, is_public, secrets, as_saved),
    )  # fmt: skip


def _secrets(run: RunView, kind: Kind) -> list[str]:
    """Show the choice of a stored secret for each credential; return CREDENTIAL=SECRET for each."""
    stored = service.current().secrets.every()
    names = sorted({secret.name for secret in stored if secret.project in (None, run.project)})
    with st.container(horizontal=True):
        chosen = {
            credential: st.selectbox(
                credential, names, index=names.index(credential) if credential in names else None,
                key=f"push_secret_{credential}", placeholder="none",
            )
            for credential in NEEDED[kind]
        }  # fmt: skip
    if not names:
        st.caption(f"No secret is stored yet. [Set secrets]({links.address('account')})")
    return [f"{credential}={name}" for credential, name in chosen.items() if name is not None]


def _push(checkpoint_id: int, target: str, is_public: bool, secrets: Sequence[str], as_saved: bool) -> None:
    asking.ask(service.current(), checkpoint_id, target, is_public=is_public, secrets=secrets, as_saved=as_saved)


def _end(task: CheckpointTaskView) -> None:
    """Say how a push ended, with what was left as it was."""
    target = task.options.get("target")
    if task.state == "failed":
        st.warning(as_text(f"{task.name} to {target}: {task.message}"), icon=":material/error:")
    result = service.current().checkpoint_tasks.task(task.id).result if task.state == "succeeded" else None
    if result:
        sentence = f"{task.name} is at {result['url']}: {plural(result['files'], 'file')}, {size(result['bytes'])}."
        st.success(as_text(" ".join([sentence, *result["notes"]])), icon=":material/check:")
