"""How long ranks waited in their latest collectives for the last rank to come. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.collective_records import Collective, RankCollectives


@dataclass(frozen=True)
class Wait:
    """One call, and how long its rank waited there for the last rank of its node."""

    call: Collective
    waited_s: float


def waits_of_node(records: Sequence[RankCollectives]) -> dict[int, list[Wait]]:
    """Return rank -> its calls, oldest first. Ranks of one node share a clock; those of others cannot be compared."""
    called_at: dict[tuple[str, int], list[float]] = {}
    for record in records:
        for call in record.calls:
            called_at.setdefault((call.group, call.sequence), []).append(call.called_at)
    return {record.rank: [_wait(call, record, called_at) for call in record.calls] for record in records}


def _wait(call: Collective, record: RankCollectives, called_at: dict[tuple[str, int], list[float]]) -> Wait:
    last = max(called_at[call.group, call.sequence]) if call.retired else record.at
    return Wait(call, max(0.0, last - call.called_at))
