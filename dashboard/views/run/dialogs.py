"""Dialogs: stop, delete or edit a run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from pydantic import ValidationError

from dashboard.errors import describe
from dashboard.service import service
from dashboard.views.layout import actions, links, permissions, visitor
from domain.lists.run_lists import marks
from domain.messages import State
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.spec import LONGEST_REASON, RunEdit
from domain.text.formats import as_text, count, number, plural, size
from domain.views import CheckpointView, RunView


@visitor.dialog("Stop this run?", icon=":material/stop_circle:")
def stop(run: RunView) -> None:
    """Confirm a stop, which can be followed by a resume."""
    if run.state == State.QUEUED:
        st.markdown(f"**{as_text(run.name)}** has not started yet; it will leave the queue.")
    elif run.watched is not None:
        st.markdown(
            f"The command of **{as_text(run.name)}** on {as_text(run.watched.origin)}, gets SIGTERM and has "
            f"{run.spec.stop_grace_s:g} s to save a checkpoint and exit; then remaining processes are killed."
        )
    else:
        st.markdown(
            f"Every rank of **{as_text(run.name)}** gets SIGTERM and has {run.spec.stop_grace_s:g} s to "
            "save a checkpoint and exit; then remaining processes are killed. The run can be resumed later."
        )
    if permissions.is_anothers(run.by):
        st.markdown(f"It is **{as_text(run.by)}**'s run. They get a notice, with your reason.")
        st.text_input(
            "Reason (optional)", key=f"stop_reason_{run.id}", max_chars=LONGEST_REASON, autocomplete="off",
            placeholder="needed for the demo at noon",
        )  # fmt: skip
    actions.confirm(run.id, "Stop the run", "Keep it going", lambda: _stop(run.id))


def _stop(run_id: str) -> None:
    service.current().stop(run_id, reason=st.session_state.get(f"stop_reason_{run_id}"))


@visitor.dialog("End sending?", icon=":material/cloud_off:")
def end_sending(run: RunView) -> None:
    """Confirm that unsent data of the ended run stays on its nodes."""
    if run.delivery is None:
        st.markdown(f"All data of **{as_text(run.name)}** has arrived.")
        return
    st.markdown(f"**{as_text(run.name)}**: {as_text(run.delivery.sentence)}.")
    st.markdown(
        "Unsent data stays on the run's nodes; nothing is deleted there. What has arrived stays here; the run's page "
        "lists the rest."
    )
    if permissions.is_anothers(run.by):
        st.markdown(f"It is **{as_text(run.by)}**'s run.")
    actions.confirm(f"sending_{run.id}", "End sending", "Keep sending", lambda: service.current().end_sending(run.id))


@visitor.dialog("Delete this run?", icon=":material/delete:")
def delete(run: RunView, checkpoints: Sequence[CheckpointView]) -> None:
    """Confirm the deletion of everything that the server stores of a run."""
    if not run.state.is_terminal:
        st.markdown(f"**{as_text(run.name)}** is {run.state.value}. Stop it first, then delete it.")
        return
    stored_bytes = sum(checkpoint.received_bytes for checkpoint in checkpoints)
    content = f"Its curves, logs and {plural(len(checkpoints), 'checkpoint')} ({size(stored_bytes)})"
    is_for_good, days = st.session_state.get(f"{AT_ONCE}_{run.id}", False), service.current().deletions.kept_days
    if is_for_good or not days:
        st.markdown(f"{content} are removed from the server now, for good. Files on the nodes stay there.")
    else:
        retention = f"stay on the server for {days:g} days, in which it can be restored"
        st.markdown(f"It leaves all lists now. {content} {retention}.")
    if permissions.is_anothers(run.by):
        st.markdown(f"It is **{as_text(run.by)}**'s run.")
    if days and permissions.visitor().may(Action.ERASE, run.project):
        st.checkbox("Free the disk at once", key=f"{AT_ONCE}_{run.id}", help="Nobody can undo it.")
    label = "Delete for good" if is_for_good else "Delete the run"
    actions.confirm(run.id, label, "Keep it", lambda: _delete(run, is_for_good), lambda: links.go("runs"))


def _delete(run: RunView, at_once: bool) -> None:
    deleted = service.current().delete(run.id, at_once)
    st.session_state[DELETED] = (run.id, run.name, deleted)


DELETED = "deleted_run"
"""The id, the name and the deletion of the run that was deleted last, for the message on the Runs page."""
AT_ONCE = "delete_at_once"


def checkpoint_line(checkpoint: CheckpointView) -> str:
    """Return a checkpoint in one line: its name, attempt, step, loss and marks."""
    parts = [checkpoint.name] + [f"attempt {checkpoint.attempt}"] * (checkpoint.attempt > 1)
    if checkpoint.step is not None:
        parts.append(f"step {'≈ ' if checkpoint.step_is_inferred else ''}{count(checkpoint.step)}")
    if checkpoint.loss is not None:
        parts.append(f"loss {number(checkpoint.loss)}")
    return " · ".join(parts + marks(checkpoint))


# The dialog in which a run is renamed, moved, tagged, noted, pinned, archived and made the baseline.


@visitor.dialog("Edit this run", icon=":material/edit:")
def edit(run: RunView) -> None:
    """Show the fields with their present values; all changes are stored at once."""
    st.text_input("Name", run.name, max_chars=200, key=f"edit_name_{run.id}")
    st.text_input("Project", run.project, max_chars=200, key=f"edit_project_{run.id}")
    st.text_input(
        "Tags",
        " ".join(run.tags),
        placeholder="paper baseline",
        help="Words separated by spaces.",
        key=f"edit_tags_{run.id}",
    )
    st.text_area("Note", run.note or "", max_chars=10_000, placeholder="Plain text", key=f"edit_note_{run.id}")
    with st.container(horizontal=True):
        st.checkbox("Pinned", run.pinned, help="Pinned runs come first in the list.", key=f"edit_pinned_{run.id}")
        st.checkbox(
            "Baseline",
            run.baseline,
            help="The project's runs are compared with it; a project has one baseline.",
            key=f"edit_baseline_{run.id}",
        )
        archived_help = "Only a search for archived:yes lists them."
        st.checkbox("Archived", run.archived, help=archived_help, key=f"edit_archived_{run.id}")
    actions.confirm(run.id, "Save", "Cancel", lambda: _save(run))


EDITED = ("name", "project", "tags", "note", "pinned", "baseline", "archived")


def _save(run: RunView) -> None:
    """Store the fields. Raises InvalidRequest."""
    typed = {name: st.session_state[f"edit_{name}_{run.id}"] for name in EDITED}
    fields = {name: typed[name] for name in ("name", "project", "note", "pinned", "archived")}
    if (is_baseline := typed["baseline"]) != run.baseline:
        fields["baseline"] = is_baseline  # else one that moves would become the baseline there
    tags = set(typed["tags"].split())
    changes = {"add_tags": sorted(tags - set(run.tags)), "remove_tags": sorted(set(run.tags) - tags)}
    try:
        change = RunEdit.model_validate(fields | changes)
    except ValidationError as error:
        raise InvalidRequest(*describe(error.errors())) from None
    service.current().edit(run.id, change)
