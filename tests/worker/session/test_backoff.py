"""Pauses between retries: short while the server may be starting beside this program, then ever longer."""

from __future__ import annotations

from worker.session.server_session import FIRST_GROWTH, LONGEST_PAUSE_S, Backoff


def test_until_the_first_answer_pauses_are_a_tenth_of_the_time_waited() -> None:
    backoff, waited_s = Backoff(FIRST_GROWTH), 0.0
    while waited_s < 30.0:
        pause_s = backoff.failed(waited_s)
        assert pause_s <= 0.2 + 0.25 * waited_s
        waited_s += pause_s


def test_pauses_grow_to_the_longest_and_start_anew_after_an_answer() -> None:
    backoff = Backoff()
    pauses = [backoff.failed(0.0) for _ in range(20)]
    assert pauses[0] <= 0.2 and LONGEST_PAUSE_S / 2 <= pauses[-1] <= LONGEST_PAUSE_S
    backoff.worked()
    assert backoff.failed(0.0) <= 0.2
