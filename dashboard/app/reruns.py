"""Reruns that a page asks for while its script is just ending: they wait until the page has all that it said."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData, ScriptRunner

LOOKED_EVERY_S = 0.01
_start = AppSession._create_scriptrunner
_newest_pages = WeakKeyDictionary[AppSession, str]()
"""The page for which a session's newest runner was started."""


def wait_for_last_messages() -> None:
    """Let no session of Streamlit's lose the last messages of a script.

    For a rerun of a fragment it replaces a runner that has ended, and from then on ignores what that runner has said
    and the event loop has not passed on yet: on a busy machine dialogs stay open, and pages empty. Its `request_rerun`
    describes this, and leaves it to the fragments that are gone (streamlit/streamlit#9921)."""
    AppSession._create_scriptrunner = _start_after_the_last  # type: ignore[method-assign]


def _start_after_the_last(self: AppSession, initial_rerun_data: RerunData) -> None:
    if self._scriptrunner is None:
        _newest_pages[self] = initial_rerun_data.page_script_hash
        _start(self, initial_rerun_data)
    else:
        pages = (_newest_pages[self], initial_rerun_data.page_script_hash)
        _wait_for_end(self, initial_rerun_data, self._scriptrunner, pages)


def _wait_for_end(session: AppSession, rerun: RerunData, ended: ScriptRunner, pages: tuple[str, str]) -> None:
    runner = session._scriptrunner
    if runner is ended:
        session._event_loop.call_later(LOOKED_EVERY_S, _wait_for_end, session, rerun, ended, pages)
    elif session._state == AppSessionState.SHUTDOWN_REQUESTED or _newest_pages[session] not in pages:
        return  # run now, a part of a page that was left would take the place of the new one
    elif runner is None or not runner.request_rerun(rerun):
        _start_after_the_last(session, rerun)
