"""What the front does about its companion, and what people read of it; in virtual time."""

from __future__ import annotations

import json

import pytest

from tests.virtual_time import VirtualTime
from worker.watched import companion_process
from worker.watched.companion_process import CompanionProcess


class Programs:
    """The companions that were started; `ended`: how many of them have ended."""

    def __init__(self, clock) -> None:
        self._clock = clock
        self.starts: list[float] = []
        self.are_ended = False
        self.error: OSError | None = None

    def launch(self, folder):
        if self.error:
            raise self.error
        self.starts.append(self._clock.now())
        return self

    def poll(self):
        return 1 if self.are_ended else None


class Front:
    def __init__(self, folder, clock) -> None:
        self.folder, self.clock = folder, clock
        self.said: list[str] = []
        self.programs = Programs(clock)
        self.companion = CompanionProcess(folder, self.said.append, self.programs.launch, clock)

    def tell(self, state, **more) -> None:
        draft = self.folder / "draft"
        draft.write_text(json.dumps({"state": state} | more))
        draft.replace(self.folder / "companion.json")

    def run(self, seconds: float) -> None:
        """Look as often as a supervisor waits."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.companion.look()
            self.clock.advance(0.2)

    def wait(self, is_last=False, interrupted_after=float("inf")) -> float:
        """Wait for the delivery; returns the seconds it took."""
        began = self.clock.now()

        def is_interrupted(seconds: float) -> bool:
            self.clock.advance(seconds)
            return self.clock.now() - began >= interrupted_after

        self.companion.wait_until_delivered(is_last, is_interrupted)
        return self.clock.now() - began


@pytest.fixture
def front(tmp_path):
    with VirtualTime() as clock:
        yield Front(tmp_path, clock)


def test_a_quick_registration_is_told_with_its_address_once(front):
    front.run(0.4)
    (front.folder / "registration.json").write_text(json.dumps({"assignment": {"run_id": "k3abcdefgh"}}))
    front.tell("registered", url="http://there/run?id=k3abcdefgh")
    front.run(60.0)
    assert front.said == ["watching as k3abcdefgh, http://there/run?id=k3abcdefgh"]
    assert len(front.programs.starts) == 1


def test_a_late_registration_is_told_when_the_output_is_over(front):
    front.run(10.0)
    (front.folder / "registration.json").write_text(json.dumps({"assignment": {"run_id": "k3abcdefgh"}}))
    front.tell("registered", url="http://there/run?id=k3abcdefgh")
    front.run(10.0)
    assert front.said == []
    front.tell("done", url="http://there/run?id=k3abcdefgh")
    front.wait()
    front.wait()
    assert front.said == ["watched as k3abcdefgh, http://there/run?id=k3abcdefgh"]


def test_trouble_is_told_once_whenever_it_comes(front):
    front.run(30.0)
    front.tell("refused", message="The token is not valid.")
    front.run(30.0)
    front.tell("away", message="http://there does not answer.")
    front.run(30.0)
    assert front.said == ["The token is not valid."]


def test_a_companion_that_is_killed_is_started_again_less_and_less_often(front):
    front.programs.are_ended = True
    front.run(120.0)
    starts = [round(at - front.programs.starts[0]) for at in front.programs.starts]
    assert starts == [0, 5, 15, 35, 75]


@pytest.mark.parametrize("state", ["done", "refused"])
def test_one_that_has_left_by_itself_is_not(front, state):
    front.run(1.0)
    front.tell(state)
    front.programs.are_ended = True
    front.run(120.0)
    assert len(front.programs.starts) == 1


def test_a_companion_that_cannot_be_started_costs_one_line(front):
    front.programs.error = OSError(12, "Cannot allocate memory")
    front.run(120.0)
    (sentence,) = front.said
    assert "its sender could not be started ([Errno 12] Cannot allocate memory)" in sentence


def test_in_a_terminal_two_seconds_are_waited_for_the_rest(front):
    front.run(5.0)
    front.tell("registered", sent_bytes=1, total_bytes=100)
    assert front.wait() == pytest.approx(2.0, abs=0.1)
    assert front.said == []


@pytest.mark.parametrize("state", ["done", "away", "refused"])
def test_nothing_is_waited_for_that_will_not_come(front, state):
    front.run(5.0)
    front.tell(state)
    assert front.wait(is_last=True) == 0.0


def test_where_the_companion_ends_with_us_it_may_send_as_long_as_it_gets_on(front):
    front.run(5.0)
    front.tell("registered", sent_bytes=0, total_bytes=100)
    for second in range(1, 61):
        front.clock.call_after(second, lambda sent=second: front.tell("registered", sent_bytes=sent, total_bytes=100))
    assert front.wait(is_last=True) == pytest.approx(60.0 + companion_process.STALLED_S, abs=0.2)
    assert front.said == [
        f"not everything could be sent in time; the rest is in {front.folder}: `rankzero sync` sends it"
    ]


def test_five_minutes_are_the_limit(front):
    front.run(5.0)
    for second in range(1, 1000):
        front.clock.call_after(second, lambda sent=second: front.tell("registered", sent_bytes=sent))
    assert front.wait(is_last=True) == pytest.approx(300.0, abs=0.2)


def test_whoever_wants_an_end_gets_it(front):
    front.run(5.0)
    assert front.wait(is_last=True, interrupted_after=1.0) == pytest.approx(1.0, abs=0.1)


def test_a_companion_without_a_word_is_told_of_at_the_end(front):
    front.programs.are_ended = True
    assert front.wait() == 0.0
    assert front.said == [f"what is recorded stays in {front.folder}: `rankzero sync` sends it"]
