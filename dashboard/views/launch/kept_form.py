"""A filled form is kept by the browser's tab, which hands it back once after a reload or a restart of the server."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard.components import browser
from dashboard.planning import preview, proposals
from dashboard.views.launch.fields import FORM, PREFIX
from dashboard.views.launch.form import EMPTY
from dashboard.views.launch.script import FIELD, TAKE
from dashboard.views.launch.swept_fields import LINES
from dashboard.views.layout import links, permissions, visitor
from domain.masking.masking import MASK, is_secret_argument, is_secret_variable, masked_args, masked_text
from domain.people.rights import OWNER


def keep() -> None:
    """Have the tab keep what is filled in; a session that begins with an untouched form asks for what was kept."""
    values = without_secrets(_values())
    if UNTOUCHED not in st.session_state:
        is_filled_from = ASKED_BY not in st.session_state and not FILLING.isdisjoint(st.query_params)
        st.session_state[UNTOUCHED] = {} if is_filled_from else values
    is_touched = values != st.session_state[UNTOUCHED]
    asked_by = st.session_state.setdefault(ASKED_BY, secrets.token_hex(8))
    if is_touched:
        asked_by = st.session_state[ASKED_BY] = None
    safe_values = {**values, OWNER_KEY: _visitor()} if is_touched else {}
    browser.kept_form({"values": safe_values, "asked_by": asked_by}, _take, KEPT)


FILLING = frozenset({"from", proposals.PARAMETER})
"""What in an address fills the form in."""
OWNER_KEY = "of"
"""Holds whose form it is: the next person at this browser does not get it."""
KEPT, TAB_KEY = "launch_form_kept", "rankzero.form"
UNTOUCHED, ASKED_BY = "launch_untouched", "launch_asked_by"
UPLOADED_FIELDS = ("upload", "snapshot", "snapshot_of")
"""An uploaded file has to be chosen again."""
NAMES = {*(PREFIX + name for name in EMPTY if name not in UPLOADED_FIELDS), LINES}
NOTICE = "Restored from this tab, without values that look secret."
LONGEST = 100_000
Value = str | bool | list[str]


def forget() -> None:
    """Keep the form as it is now no longer: it was launched, or emptied."""
    st.session_state[ASKED_BY] = None
    st.session_state.pop(UNTOUCHED, None)


def leave_for(page: str, **query: str) -> None:
    """Open the page of what was launched."""
    forget()
    browser.page_link(links.address(page, **query), "go", forgets=TAB_KEY)


def without_secrets(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values that may be kept: none that looks secret or was masked, no line of the environment that does."""
    safe_values = {name: _safe_lines(value) if name == PREFIX + "env" else value for name, value in values.items()}
    return {name: value for name, value in safe_values.items() if not _may_be_secret(name, value)}


def _safe_lines(env: Value) -> str:
    pairs = [(line, *line.strip().partition("=")) for line in str(env).splitlines()]
    return "\n".join(line for line, name, _, value in pairs if not is_secret_variable(name, value))


def _may_be_secret(name: str, value: Value) -> bool:
    if not isinstance(value, str):
        return False
    is_named_so = name.startswith(FIELD) and is_secret_argument(name.removeprefix(FIELD).partition("_")[2])
    return is_named_so or MASK in value or masked_text(value) != value or _has_secret_argument(value)


def _has_secret_argument(text: str) -> bool:
    try:
        words = shlex.split(text)
    except ValueError:  # an open quote: what will follow is not known yet
        words = text.split()
    return masked_args(words) != words


def _values() -> dict[str, Value]:
    return {
        str(name): value
        for name, value in st.session_state.items()
        if _is_kept(str(name)) and isinstance(value, str | bool | list)
    }


def _is_kept(name: str) -> bool:
    return name in NAMES or name.startswith((FIELD, TAKE))


@visitor.acts
def _take() -> None:
    """Fill the form with what the tab kept, unless somebody has begun to fill it meanwhile."""
    offered = getattr(st.session_state[KEPT], "kept", None)
    if st.session_state.get(ASKED_BY) is None or not isinstance(offered, dict):
        return
    st.session_state[ASKED_BY] = None
    if offered.get(OWNER_KEY) != _visitor():
        return
    fitting = {name: value for name, value in offered.items() if _fits(name, value)}
    for name, value in fitting.items():
        st.session_state[name] = value
    if fitting:
        st.session_state["launch_notice"] = NOTICE


def _visitor() -> str:
    return permissions.visitor().by or OWNER


def _fits(name: str, value: object) -> bool:
    """Whether the form has such a value: what the tab kept may be of another version."""
    field = name.removeprefix(PREFIX)
    if isinstance(EMPTY.get(field), list):
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if not _is_kept(name) or not isinstance(value, str | bool):
        return False
    if isinstance(EMPTY.get(field), bool):
        return isinstance(value, bool)
    choices = [recipe.name for recipe in preview.recipes()] if field == "recipe" else _choices(field)
    return value in choices if choices else isinstance(value, bool) or len(value) <= LONGEST


def _choices(field: str) -> Sequence[str]:
    return FORM[field].offered if field in FORM else ()
