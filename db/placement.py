"""The scheduler as a pure function: a queue and the nodes in, assignments or a reason in words out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from db.forecast import Forecast, Start
from db.placement_words import Blocker, Situation, reason
from db.pools import Pool, Pools
from db.room import Room
from db.wants import Decision, Host, Waits, Want


def place(queue: Iterable[Want], hosts: Iterable[Host], now: float) -> Decision:
    """Give each run all its devices at once or none: by priority, then first come.

    A run passes one that has to wait only if it does not delay it: it takes what that one will not need, or is
    expected to end before that one can start (EASY backfill). Runs whose nodes differ do not wait for each other."""
    pools = Pools(hosts)
    room, forecast = Room(pools.hosts, now), Forecast(pools.hosts, now)
    decision, waiting, first = Decision(), [], _First()
    for want in sorted(queue, key=turn):
        pool = pools.of(want)
        if chosen := room.choose(want, pool):
            decision.placed[want.fence] = room.take(want, chosen)
            forecast.occupy(want, chosen, now)
            continue
        waiting.append((want, pool))
        if first.is_first_for(pool) and (start := forecast.earliest(want, pool)):
            first.add(pool)
            room.keep(want, start, forecast)
    queued = {want.run_id: want for want, _ in waiting}
    for want, pool in waiting:
        start = forecast.earliest(want, pool)
        there = _situation(want, pool, pools.hosts, room, start, queued)
        at = start.at if start is not None and start.at < math.inf else None
        decision.waiting[want.fence] = Waits(reason(want, there, now), at)
        if start is not None:
            forecast.occupy(want, start.hosts, start.at)
    return decision


def turn(want: Want) -> tuple[int, float, int]:
    """The order of the queue."""
    return -want.priority, want.created_at, want.fence


class _First:
    """The nodes that first-in-line runs wait for: one such run for all nodes that it might get."""

    def __init__(self) -> None:
        self._taken: list[frozenset[int]] = []

    def is_first_for(self, pool: Pool) -> bool:
        return all(pool.usable.isdisjoint(taken) for taken in self._taken)

    def add(self, pool: Pool) -> None:
        self._taken.append(pool.usable)


def _situation(
    want: Want,
    pool: Pool,
    hosts: Sequence[Host],
    room: Room,
    start: Start | None,
    queued: Mapping[str, Want],
) -> Situation:
    with_room = room.with_free(want.devices_per_node, pool)
    kept_for = queued.get(room.kept_for(with_room) or "") if len(with_room) >= want.nodes else None
    blocker = None
    if start is not None:
        ends_at = None if start.at == math.inf else start.at
        node = hosts[start.blocker_host].name
        blocker = Blocker(start.blocker, node, ends_at, queued.get(start.blocker))
    return Situation(pool.kind, [hosts[i] for i in pool.known], room.free_in(pool), kept_for, blocker)
