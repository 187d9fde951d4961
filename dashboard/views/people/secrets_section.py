"""Secrets on the Account page: set, listed by name, removed; a value is typed once and never shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from dashboard.security.keys.secret_key import SecretsUnreadable
from dashboard.service import service
from dashboard.views.layout import actions, permissions, style, visitor
from domain.people.rights import Denied
from domain.people.roles import Action
from domain.people.secret_views import SecretView
from domain.requests.errors import InvalidRequest
from domain.text.formats import ago, as_text

MINE = "yours"
NAME, VALUE, OWNER, REFUSED = "secret_name", "secret_value", "secret_owner", "secret_refused"
DOUBT = "secret_doubt"
COLUMNS, FORM_COLUMNS = (3, 2, 3, 1.2), (3, 3, 2.4, 1)


@style.quiet_without_store
def show_secrets(projects: Sequence[str]) -> None:
    """Show the secrets that the visitor may launch with. `projects`: those that the visitor sees."""
    st.header("Secrets", anchor=False)
    st.caption(
        "Runs that name a secret get it as an environment variable; it is masked wherever they print or log it. "
        "`rankzero secret set NAME` sets one, too."
    )
    secrets = service.current().secrets.every()
    with st.container(key="secret_list"):
        _table(secrets)
    managed = [project for project in projects if permissions.visitor().may(Action.MANAGE, project)]
    with st.form("secret_form", border=False):
        name, value, owner, button = st.columns(FORM_COLUMNS, vertical_alignment="bottom")
        name.text_input("Name", key=NAME, placeholder="HF_TOKEN", autocomplete="off")
        value.text_input("Value", key=VALUE, type="password", autocomplete="new-password")
        owner.selectbox("Belongs to", [MINE, *managed], key=OWNER, format_func=_whose)
        button.form_submit_button("Set", on_click=_set, width="stretch")
    if refusal := st.session_state.get(REFUSED):
        st.markdown(f":red[{as_text(refusal)}]")
    if doubt := st.session_state.pop(DOUBT, None):
        st.markdown(f":orange[{as_text(doubt)}]")


def _table(secrets: Sequence[SecretView]) -> None:
    if not secrets:
        st.caption("There is no secret yet.")
    now = service.current().clock()
    for secret in secrets:
        name, owner, when, button = st.columns(COLUMNS, vertical_alignment="center")
        name.markdown(f"`{secret.name}`")
        owner.markdown(as_text(_whose(secret.project or MINE)))
        when.caption(as_text(f"set {ago(secret.set_at, now)} by {secret.by or 'Rankzero'}"))
        if secret.project is None or permissions.visitor().may(Action.MANAGE, secret.project):
            key = f"secret_remove_{secret.project or ''}_{secret.name}"
            if button.button("Remove", key=key, type="tertiary"):
                _confirm_removal(secret)


def _whose(owner: str) -> str:
    return owner if owner == MINE else f"project {owner}"


@visitor.dialog("Remove this secret?")
def _confirm_removal(secret: SecretView) -> None:
    st.markdown(
        f"The value of `{secret.name}` is deleted for good. Attempts that have begun keep it; later ones of runs that "
        "name it start only once it is set again."
    )
    target = f"secret_{secret.project or ''}_{secret.name}"
    actions.confirm(target, "Remove it", "Keep it", partial(_remove, secret))


@visitor.acts
def _set() -> None:
    """Set what was typed; the value does not stay in the session."""
    project = None if st.session_state[OWNER] == MINE else st.session_state[OWNER]
    name, value = st.session_state[NAME].strip(), st.session_state[VALUE]
    st.session_state[VALUE] = ""
    st.session_state.pop(REFUSED, None)
    try:
        doubt = service.current().secrets.set(name, value, project).doubt
        st.session_state[DOUBT] = f"{name} is set. {doubt}" if doubt else None
        st.session_state[NAME] = ""
    except InvalidRequest as error:
        sentence = str(error).removeprefix(f"{error.field}: ")
        st.session_state[REFUSED] = sentence[:1].upper() + sentence[1:]
    except (Denied, SecretsUnreadable) as error:
        st.session_state[REFUSED] = str(error)


def _remove(secret: SecretView) -> None:
    service.current().secrets.remove(secret.name, secret.project)
