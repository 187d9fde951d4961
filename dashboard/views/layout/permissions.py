"""Who did what, and what a person may not do: shown disabled, with the reason and whom to ask as its tooltip."""

from __future__ import annotations

from typing import TypedDict

import streamlit as st

from dashboard.service import service
from db import acting
from db.people.ownership import DEFAULT_PROJECT
from db.people.users import has_several
from domain.people.rights import OWNER, Rights
from domain.people.roles import Action
from domain.text.formats import as_list, as_text
from domain.views import RunView


class Limits(TypedDict):
    """The arguments of a button, menu or popover that depend on what its person may do."""

    disabled: bool
    help: str | None


def visitor() -> Rights:
    """The rights of the person whose page this is."""
    return acting.entered_rights()


def limits(
    action: Action, project: str | None, by: str | None = None, help: str | None = None, disabled: bool = False
) -> Limits:
    """Return the limits of a button for an action; `help` and `disabled` are its own, where the action is allowed."""
    return _limits(visitor().refusal(action, project, by), help, disabled)


def limits_on(run: RunView, help: str | None = None, disabled: bool = False) -> Limits:
    """Return the limits of a button that acts on a run."""
    return limits(Action.ACT, run.project, run.by, help, disabled)


def limits_anywhere(action: Action, help: str | None = None, disabled: bool = False) -> Limits:
    """Return the limits of a button for an action whose project is chosen later."""
    return _limits(visitor().refusal_anywhere(action), help, disabled)


def signed(by: str | None, before: str = ", ") -> str:
    """Return `, by ana` to put behind what somebody did; nothing where the visitor is alone here."""
    return f"{before}by {by}" if by and has_several(service.current().store) else ""


def is_anothers(by: str | None) -> bool:
    """Whether something is another person's than the visitor's."""
    return by is not None and by != (visitor().by or OWNER)


def may_act_on(run_id: str) -> bool:
    """Whether the person may act on a run."""
    run = service.current().find_run(run_id)
    return run is not None and visitor().may(Action.ACT, run.project, run.by)


def may_launch() -> bool:
    """Whether the person may launch in any project."""
    return visitor().refusal_anywhere(Action.LAUNCH) is None


def project_to_launch_in() -> str:
    """The project that a form proposes: the usual one, unless the person may launch in others alone."""
    rights = visitor()
    own = [] if rights.may(Action.LAUNCH, DEFAULT_PROJECT) else rights.own_to_launch_in()
    return next(iter(own), DEFAULT_PROJECT)


def say_why_not(refusal: str | None) -> bool:
    """Show in place of a form why the person may not do this; returns whether they may not."""
    if refusal is not None:
        if visitor().everywhere is not None:  # in a private project it may be others
            refusal += f" Here that is {as_list(service.current().people.managers())}."
        st.info(as_text(refusal), icon=":material/lock:")
    return refusal is not None


def _limits(refusal: str | None, help: str | None, disabled: bool) -> Limits:
    if refusal is None:
        return {"disabled": disabled, "help": help}
    return {"disabled": True, "help": as_text(refusal)}
