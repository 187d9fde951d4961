"""The dialog in which a run is renamed, moved, tagged, noted, pinned, archived and made the baseline."""

from __future__ import annotations

import streamlit as st
from pydantic import ValidationError

from dashboard.errors import describe
from dashboard.service import service
from dashboard.views.layout import asking
from domain.errors import InvalidRequest
from domain.spec import RunEdit
from domain.views import RunView


@st.dialog("Edit this run", icon=":material/edit:")
def edit(run: RunView) -> None:
    """Show the fields with their present values; all changes are stored at once."""
    st.text_input("Name", run.name, max_chars=200, key="edit_name")
    st.text_input("Project", run.project, max_chars=200, key="edit_project")
    st.text_input(
        "Tags",
        " ".join(run.tags),
        placeholder="paper baseline",
        help="Words separated by spaces.",
        key="edit_tags",
    )
    st.text_area("Note", run.note or "", max_chars=10_000, placeholder="Plain text", key="edit_note")
    with st.container(horizontal=True):
        st.checkbox("Pinned", run.pinned, help="Pinned runs come first in the list.", key="edit_pinned")
        st.checkbox(
            "Baseline",
            run.baseline,
            help="The project's runs are compared with it; a project has one baseline.",
            key="edit_baseline",
        )
        st.checkbox("Archived", run.archived, help="Only a search for archived:yes lists them.", key="edit_archived")
    asking.confirm("Save", "Cancel", lambda: _save(run))


def _save(run: RunView) -> None:
    """Store the fields. Raises InvalidRequest."""
    fields = {name: st.session_state[f"edit_{name}"] for name in ("name", "project", "note", "pinned", "archived")}
    if (is_baseline := st.session_state["edit_baseline"]) != run.baseline:
        fields["baseline"] = is_baseline  # else one that moves would become the baseline there
    tags = set(st.session_state["edit_tags"].split())
    changes = {"add_tags": sorted(tags - set(run.tags)), "remove_tags": sorted(set(run.tags) - tags)}
    try:
        change = RunEdit.model_validate(fields | changes)
    except ValidationError as error:
        raise InvalidRequest(*describe(error.errors())) from None
    service.current().edit(run.id, change)
