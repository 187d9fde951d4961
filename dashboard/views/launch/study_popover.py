"""A popover of the form that makes a study of several runs from the settings, and then opens its page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from dashboard.views.launch import keeping
from dashboard.views.launch.fields import PREFIX
from dashboard.views.layout import refusals
from domain.spec import RunSpec


@dataclass(frozen=True)
class StudyPopover:
    """What is studied, which fields it asks for, and what creates it."""

    name: str
    """Begins the names of its fields in the session."""
    page: str
    """The page of what was created."""
    label: str
    icon: str
    button: str
    show_fields: Callable[[], None]
    create: Callable[[RunSpec, str | None], str]
    """Returns the id of a study of the settings and the run they were copied from.

    Raises InvalidRequest, WrongState."""

    def show(self, spec: RunSpec | None, like: str | None) -> None:
        """Show the popover; after a study was created, open its page."""
        with st.popover(self.label, icon=f":material/{self.icon}:", key=f"{PREFIX}{self.name}", on_change="rerun"):
            self.show_fields()
            # No callback: it would get the settings of the last drawing, which lack what was typed since.
            if st.button(self.button, disabled=spec is None) and spec is not None:
                refusals.attempt(lambda: keeping.leave_for(self.page, id=self.create(spec, like)), self._refused)
            refusals.show(self._refused)

    @property
    def _refused(self) -> str:
        return f"{self.name}_refused"
