"""Decide which place a process that watches gets in the run of its key. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from domain.liveness import is_silent
from domain.text.formats import as_list
from domain.watching.messages import WatchRequest


class PlaceOutcome(Enum):
    """What becomes of a request."""

    JOIN = auto()
    """It gets a task of the latest attempt."""
    NEXT_ATTEMPT = auto()
    NEW_RUN = auto()
    WAIT = auto()
    REFUSE = auto()


@dataclass(frozen=True)
class TakenProcess:
    """A place that a process has in the latest attempt."""

    process: int
    host: str
    pid: int
    has_ended: bool
    silent_s: float


@dataclass(frozen=True)
class Latest:
    """The latest attempt of the run with the request's key."""

    run_id: str
    attempt: int
    ended_at: float | None
    """None while it is live."""
    taken: Sequence[TakenProcess]


@dataclass(frozen=True)
class PlaceDecision:
    """The outcome, with the place for one that joins or begins, and the sentence for one that does not."""

    outcome: PlaceOutcome
    process: int = 0
    message: str = ""


def decide(request: WatchRequest, latest: Latest | None) -> PlaceDecision:
    """Decide about a process; `latest` is None where nothing has its key.

    One that was started before the attempt ended still belongs to it, however late it is heard of."""
    process = request.process or 0
    if latest is None:
        return PlaceDecision(PlaceOutcome.NEW_RUN, process)
    free = _free_place(request, latest)
    belongs = latest.ended_at is None or (request.processes is not None and request.started_at <= latest.ended_at)
    if free is not None and belongs:
        return PlaceDecision(PlaceOutcome.JOIN, free)
    if latest.ended_at is not None:
        return PlaceDecision(PlaceOutcome.NEXT_ATTEMPT if request.is_lasting else PlaceOutcome.NEW_RUN, process)
    return _without_place(request, latest)


def _free_place(request: WatchRequest, latest: Latest) -> int | None:
    """The process's own place, or the first free one for a process without a number; None where it is taken."""
    taken = {one.process for one in latest.taken}
    if request.process is not None:
        return None if request.process in taken else request.process
    free = next(place for place in range(len(taken) + 1) if place not in taken)
    return free if request.processes is None or free < request.processes else None


def _without_place(request: WatchRequest, latest: Latest) -> PlaceDecision:
    """Let a process wait for the end of a live attempt, or refuse one that comes twice."""
    own = [one for one in latest.taken if request.process in (None, one.process)]
    living = [one for one in own if not one.has_ended]
    where = f"attempt {latest.attempt} of run {latest.run_id}"
    if not living:
        return PlaceDecision(
            PlaceOutcome.WAIT, message=f"waits until {where} has ended: others of its processes still run"
        )
    hosts = as_list(list(dict.fromkeys(one.host for one in living)), 4)
    if all(is_silent(one.silent_s) for one in living):
        return PlaceDecision(
            PlaceOutcome.WAIT, message=f"waits until {where} has ended: there is no contact with {hosts}"
        )
    named = f"process {living[0].process} of" if len(living) == 1 else "each of the processes of"
    pid = f" (process id {living[0].pid})" if len(living) == 1 else ""
    return PlaceDecision(
        PlaceOutcome.REFUSE,
        message=f"{named[0].upper()}{named[1:]} run {latest.run_id} is already watched, on {hosts}{pid}: one process "
        "is watched once. For a run of its own, use another key: rankzero watch --run KEY.",
    )
