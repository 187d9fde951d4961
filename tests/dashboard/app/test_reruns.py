"""What becomes of a rerun that meets a script which has ended and whose last messages are on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.runtime.app_session import AppSessionState
from streamlit.runtime.scriptrunner import RerunData

from dashboard.app import reruns

ON_RUN = RerunData(page_script_hash="run", fragment_id="actions")
"""A part of the page of a run asks for itself."""


class Runner:
    """One that has ended takes no rerun any more."""

    def __init__(self, has_ended: bool = False) -> None:
        self.has_ended = has_ended
        self.taken: list[RerunData] = []

    def request_rerun(self, rerun: RerunData) -> bool:
        if not self.has_ended:
            self.taken.append(rerun)
        return not self.has_ended


class Session:
    """A session with the event loop that it asks to be called later."""

    _state = AppSessionState.APP_NOT_RUNNING
    _scriptrunner: Runner | None = None

    def __init__(self) -> None:
        self._event_loop = self
        self.later: list[Callable[[], object]] = []

    def call_later(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        self.later.append(lambda: function(*arguments))

    def pass_time(self) -> None:
        calls, self.later = self.later, []
        for call in calls:
            call()

    def ask(self, rerun: RerunData) -> None:
        reruns._start_after_the_last(self, rerun)  # type: ignore[arg-type]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """One whose first script, which named no page, has just ended, and which a part of that page asks again."""

    def start(session: Any, rerun: RerunData) -> None:
        session._scriptrunner = Runner()
        session._scriptrunner.taken.append(rerun)

    monkeypatch.setattr(reruns, "_start", start)
    session = Session()
    session.ask(RerunData(page_script_hash=""))
    assert session._scriptrunner
    session._scriptrunner.has_ended = True
    session.ask(ON_RUN)
    session.pass_time()
    assert session._scriptrunner.taken != [ON_RUN] and len(session.later) == 1
    return session


def test_it_starts_when_all_messages_have_arrived(session: Session) -> None:
    session._scriptrunner = None
    session.pass_time()
    assert session._scriptrunner is not None and session._scriptrunner.taken == [ON_RUN]
    assert session.later == []


def test_a_newer_script_of_the_same_page_takes_it(session: Session) -> None:
    session._scriptrunner = None
    session.ask(newer := RerunData(page_script_hash="run"))
    session.pass_time()
    assert session._scriptrunner is not None and session._scriptrunner.taken == [newer, ON_RUN]


def test_a_newer_script_that_has_ended_too_is_waited_for(session: Session) -> None:
    session._scriptrunner = None
    session.ask(RerunData(page_script_hash="run"))
    session._scriptrunner.has_ended = True
    session.pass_time()
    session._scriptrunner = None
    session.pass_time()
    assert session._scriptrunner is not None and session._scriptrunner.taken == [ON_RUN]


def test_it_is_of_no_use_once_another_page_has_begun(session: Session) -> None:
    session._scriptrunner = None
    session.ask(newer := RerunData(page_script_hash="nodes"))
    session.pass_time()
    assert session._scriptrunner is not None and session._scriptrunner.taken == [newer]
    assert session.later == []


def test_a_session_that_is_shut_down_starts_nothing(session: Session) -> None:
    session._scriptrunner, session._state = None, AppSessionState.SHUTDOWN_REQUESTED
    session.pass_time()
    assert session._scriptrunner is None and session.later == []
