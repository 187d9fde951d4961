"""The names of stored secrets that a run gets, chosen in the launch form."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.launch.fields import FORM, PREFIX, Fields, explanation
from dashboard.views.layout import links, style

FIELD = "secrets"


def field(form: Fields) -> None:
    """Show the choice among one's own secrets and those of the form's project."""
    project = str(st.session_state[PREFIX + "project"]).strip() or "default"
    usable = {secret.name for secret in service.current().secrets.every() if secret.project in (None, project)}
    options = sorted(usable | set(st.session_state[PREFIX + FIELD]))
    if options:
        with style.explained(FIELD, explanation(FIELD)):
            st.multiselect(FORM[FIELD].label, options, key=PREFIX + FIELD, placeholder="none", persist_state="session")
    form.refusal(FIELD)
    st.caption(f"{'' if options else f'{FORM[FIELD].label}: none yet. '}[Set secrets]({links.address('account')})")
