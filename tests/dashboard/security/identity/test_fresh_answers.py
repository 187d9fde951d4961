"""Answers are read at most every other second, and never believed after they were forgotten."""

from __future__ import annotations

import pytest

from dashboard.security.identity.fresh_answers import FreshAnswers
from dashboard.security.identity.last_uses import LastUses


class Clock:
    """A clock that stands until it is moved."""

    at = 100.0

    def __call__(self) -> float:
        """The time, in seconds."""
        return self.at


def test_an_answer_is_read_again_after_two_seconds_and_recalled_when_reading_fails() -> None:
    clock, read = Clock(), iter(["first", "second"])
    answers = FreshAnswers(lambda _: next(read), clock)
    assert [answers.answer("a"), answers.answer("a")] == ["first", "first"]
    clock.at += 2.0
    assert answers.recall("a") == ("first", False)
    assert answers.answer("a") == "second"
    clock.at += 2.0
    with pytest.raises(StopIteration):
        answers.answer("a")
    assert answers.recall("a") == ("second", False)
    answers.forget()
    assert answers.recall("a") is None


def test_an_answer_that_was_forgotten_while_it_was_read_is_not_kept() -> None:
    answers: FreshAnswers[str] = FreshAnswers(lambda name: answers.forget() or name, Clock())
    assert (answers.answer("a"), answers.recall("a")) == ("a", None)


@pytest.mark.parametrize("keeps_none", [True, False])
def test_a_missing_answer_is_kept_only_where_it_cannot_appear(keeps_none: bool) -> None:
    answers = FreshAnswers(lambda _: None, Clock(), keeps_none)
    answers.answer("a")
    assert (answers.recall("a") is not None) is keeps_none


def test_uses_are_written_once_a_minute_for_each_name_and_not_lost_when_writing_fails() -> None:
    clock, written = Clock(), []
    uses = LastUses(lambda due: written.append(dict(due)), clock)
    uses.note("a")
    uses.write_down()
    clock.at += 59.0
    uses.note("a")
    uses.note("b")
    uses.write_down()
    assert written == [{"a": 100.0}, {"b": 159.0}]
    clock.at += 1.0
    uses.write_down()
    uses.write_down(at_once=True)
    assert written[2:] == [{"a": 159.0}]

    def fail(_due: object) -> None:
        raise OSError("the disk is full")

    failing = LastUses(fail, clock)
    failing.note("a")
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            failing.write_down()
