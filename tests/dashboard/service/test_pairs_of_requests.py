"""Two requests about one run: whatever comes between, the outcome is that of one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from dashboard.service.service import Service
from dashboard.settings import Settings
from tests.dashboard.service.interleaving import interrupted
from tests.dashboard.service.one_run import PEOPLES, PROGRAMS, REQUESTS, WORKERS, Facts, Lab, OneRun, Request, status
from tests.db.templates import new_data

AT_ONCE = 1e-9
"""Days for which a deleted run is kept: over before the next request."""
LATE = 1000
"""The number of a transaction that no request has."""
TURNS = {
    "queued": ("stop", "delete"),
    "running": ("stop", "succeeded"),
    "restarts": ("stop", "failed"),
    "ended": ("delete", "delete now", "resume", "promote", "move"),
    "deleted": ("restore", "erase", "come due"),
}
"""The requests after which a run in this state is in another."""


@pytest.fixture
def lab(store_url: str, tmp_path: Path) -> Iterator[Lab]:
    url = None if store_url.startswith("sqlite") else store_url
    data = tmp_path / "data" if url else new_data(tmp_path / "data")
    service = Service.open(Settings(data=data, database_url=url, keep_deleted_days=AT_ONCE), new_store=True)
    yield Lab(service)
    service.close()


def interleave(one: OneRun, first: str, second: str, at: int) -> tuple[int, int, bool]:
    """Make a request before whose writing transaction of this number another one is made, else afterwards.

    Returns the status of each, and whether the first had such a transaction."""
    before, statuses = Facts.of(one), list[int]()

    def between() -> None:
        statuses.append(status(lambda: REQUESTS[second](one)))

    with interrupted(one.store, at, between) as interruption:
        answer = status(lambda: REQUESTS[first](one))
    if not interruption.has_acted:
        between()
    check(one, before)
    for name, code in ((first, answer), (second, *statuses)):
        assert code in answers(name), f"{name} was answered with {code}"
    return answer, statuses[0], interruption.has_acted


def answers(request: str) -> set[int]:
    """The statuses that a request may be answered with: a reference to a run is a field, a node has no checkpoint."""
    return (
        {200, 404, 409} | ({422} if request == "launch from it" else set()) | ({403} if request in WORKERS else set())
    )


def check(one: OneRun, before: Facts) -> None:
    """Check what holds of a run whatever happens to it."""
    facts = Facts.of(one)
    assert facts.live in ([], [len(facts.attempts)])
    assert not (facts.is_deleted and (facts.live or facts.devices)), "a deleted run trains"
    assert one.answers() == (404 if facts.is_deleted else 200)
    assert facts.run is None or before.ended.items() <= facts.ended.items()


@pytest.mark.parametrize("kind", [PEOPLES, PROGRAMS, WORKERS], ids=["people", "programs", "workers"])
@pytest.mark.parametrize("state", TURNS)
def test_what_a_request_has_read_may_be_over_when_it_writes(lab: Lab, state: str, kind: Mapping[str, Request]) -> None:
    for first in kind:
        for second in TURNS[state]:
            try:
                interleave(lab.run(state), first, second, 0)
            except AssertionError as error:
                raise AssertionError(f"{second} within {first}") from error
            lab.clear()


@pytest.mark.long
@pytest.mark.parametrize("state", TURNS)
@pytest.mark.parametrize("first", REQUESTS)
def test_two_requests_about_one_run_are_as_if_one_had_come_after_the_other(lab: Lab, first: str, state: str) -> None:
    for second in sorted({turn for turns in TURNS.values() for turn in turns}):
        answer, facts, _ = outcome(lab, state, second, first, LATE)
        possible, between = [(answer[0], facts)], []
        for at in count():
            answer, facts, was_between = outcome(lab, state, first, second, at)
            if not was_between:
                possible.append((answer[1], facts))
                break
            between.append((answer[1], facts))
        for result in between:
            assert result in possible, f"{second} within {first}"


def outcome(lab: Lab, state: str, first: str, second: str, at: int) -> tuple[tuple[int, int], Facts, bool]:
    """Interleave two requests about a new run; returns the statuses, what is stored at last, and whether it could."""
    one = lab.run(state)
    *answer, was_between = interleave(one, first, second, at)
    one.come_to_rest()
    facts = Facts.of(one)
    lab.clear()
    return (answer[0], answer[1]), facts, was_between
