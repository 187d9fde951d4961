"""A popover of the form that makes a study of several runs from the settings, and then opens its page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from dashboard.views.layout import links, refusals
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
        if (study_id := st.session_state.pop(self._requested, None)) is not None:
            links.go(self.page, id=study_id)
        with st.popover(self.label, icon=f":material/{self.icon}:", key=f"launch_{self.name}"):
            self.show_fields()
            st.button(self.button, on_click=self._request, args=(spec, like), disabled=spec is None)
        refusals.show(self._refused)

    @property
    def _requested(self) -> str:
        return f"{self.name}_requested"

    @property
    def _refused(self) -> str:
        return f"{self.name}_refused"

    def _request(self, spec: RunSpec | None, like: str | None) -> None:
        if spec is not None:
            refusals.attempt(lambda: self._create(spec, like), self._refused)

    def _create(self, spec: RunSpec, like: str | None) -> None:
        st.session_state[self._requested] = self.create(spec, like)
