"""Reruns that a page asks for while its script is just ending: they wait until the page has all that it said."""

from __future__ import annotations

from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData

ASKED_EVERY_S = 0.01
_start = AppSession._create_scriptrunner


def wait_for_last_messages() -> None:
    """Let no session of Streamlit's lose the last messages of a script.

    For a rerun of a fragment it replaces a runner that has ended, and from then on ignores what that runner has said
    and the event loop has not passed on yet: on a busy machine dialogs stay open, and pages empty. Its `request_rerun`
    describes this, and leaves it to the fragments that are gone (streamlit/streamlit#9921)."""
    AppSession._create_scriptrunner = _start_after_the_last  # type: ignore[method-assign]


def _start_after_the_last(self: AppSession, initial_rerun_data: RerunData) -> None:
    if self._state == AppSessionState.SHUTDOWN_REQUESTED:
        return
    runner = self._scriptrunner
    if runner is None:
        _start(self, initial_rerun_data)
    elif not runner.request_rerun(initial_rerun_data):
        self._event_loop.call_later(ASKED_EVERY_S, _start_after_the_last, self, initial_rerun_data)
