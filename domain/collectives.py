"""Collectives of all ranks, as torch's Flight Recorder records them, and the first that cannot complete. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from domain.requests.bounds import Integer, Moment, Rank, WorldSize
from domain.text.formats import agree, as_list, size

MAX_CALLS = 300
"""Latest calls of each rank that are compared."""
ITEM_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1,
    "Bool": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
DEFAULT_GROUP = "default_pg"
Shape = Annotated[list[Integer], Field(max_length=64)]


class Collective(BaseModel):
    """One call of a collective by one rank."""

    model_config = ConfigDict(frozen=True)

    group: Annotated[str, Field(max_length=200)]
    """The process group's name, the same on all of its ranks."""
    description: Annotated[str, Field(max_length=200)] = DEFAULT_GROUP
    """What the script calls the group."""
    sequence: Integer
    """Number of the call in its group, from 1."""
    operation: Annotated[str, Field(max_length=100)]
    sizes: Annotated[list[Shape], Field(max_length=64)] = []
    """Shapes of the input tensors."""
    dtypes: Annotated[list[Annotated[str, Field(max_length=30)]], Field(max_length=64)] = []
    retired: bool = False
    """Whether it is over for this rank."""
    called_at: Moment = 0.0
    """Seconds since the epoch by the node's clock."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the input tensors; 0 where a data type is unknown."""
        widths = [ITEM_BYTES.get(dtype, 0) for dtype in self.dtypes]
        return sum(math.prod(size) * width for size, width in zip(self.sizes, widths, strict=False))


class RankCollectives(BaseModel):
    """The latest collectives of one rank, and what it does now."""

    rank: Rank
    world_size: WorldSize = 1
    at: Moment = 0.0
    """When they were read, by the node's clock."""
    calls: Annotated[list[Collective], Field(max_length=MAX_CALLS)] = []
    """Oldest first."""
    groups: dict[str, list[Rank]] = {}
    """Ranks of each process group, by its name."""
    is_read: bool = True
    """False when the rank did not answer, or torch records nothing in it."""
    why_not: Annotated[str, Field(max_length=300)] = ""
    line: Annotated[str, Field(max_length=500)] = ""
    """The user's line: `train.py line 88 in step`."""
    doing: Annotated[str, Field(max_length=30)] = ""
    ended: bool = False
    failure: Annotated[str, Field(max_length=500)] = ""
    """The exception with which it ended."""

    @property
    def position(self) -> Collective | None:
        """The oldest call that is not over, else the latest one."""
        return next((call for call in self.calls if not call.retired), self.calls[-1] if self.calls else None)


class NodeCollectives(BaseModel):
    """The records of one node's ranks, and whether they have stopped stepping."""

    is_stalled: bool = False
    ranks: Annotated[list[RankCollectives], Field(max_length=1024)] = []


class CollectivesVerdict(BaseModel):
    """Where the ranks left their common path."""

    model_config = ConfigDict(frozen=True)

    kind: str
    """operation, size, dtype, order, group, missing, loader, left or extra."""
    ranks: list[int]
    """The ranks that the others wait for; all of them where nothing says which are wrong."""
    sentence: str


class CollectivesAnswer(BaseModel):
    """What the server answers to a node's collectives."""

    verdict: CollectivesVerdict | None = None


# Align the ranks' records of collectives and find the first one that cannot complete. Pure.

CERTAIN_AFTER_S = 10.0
"""Calls that differ are a mistake at once, but a torn look at two ranks is none: they must have waited this long."""
MAX_CONTEXT = 4
UNEVEN = frozenset({"scatter", "gather", "all_to_all", "alltoall_base", "all_to_allv"})
"""Operations in which the sizes may differ between ranks."""
GLOO_SIZES_DIFFER = "data size doesn't match expected size"
Records = Mapping[int, RankCollectives]
Signature = tuple[str, str, tuple[tuple[int, ...], ...], tuple[str, ...]]


@dataclass(frozen=True)
class Stall:
    """The first collective of a process group that is not over."""

    sequence: int
    calls: dict[int, Collective] = field(default_factory=dict)
    """By rank."""
    absent: tuple[int, ...] = ()
    """Ranks of the group that have not called it."""

    @property
    def waiting(self) -> list[int]:
        """Ranks for which it is not over."""
        return [rank for rank, call in self.calls.items() if not call.retired]


def judge(records: Records, *, is_stalled: bool) -> CollectivesVerdict | None:
    """Return where the ranks left their common path; None while they may well continue, or if unknown."""
    stalls = [stall for group, ranks in _groups(records).items() if (stall := _first_stall(group, ranks, records))]
    for stall in sorted(stalls, key=lambda stall: min(call.called_at for call in stall.calls.values())):
        if len({_signature(call) for call in stall.calls.values()}) > 1:
            return _mismatch(stall, records) if is_stalled or _has_waited(stall, records) else None
    return _absence(stalls, records) if is_stalled else None


def _groups(records: Records) -> dict[str, set[int]]:
    """Return the ranks of each process group, by its name."""
    ranks_of: dict[str, set[int]] = {}
    for rank, record in records.items():
        for group, ranks in record.groups.items():
            ranks_of.setdefault(group, set()).update(ranks)
        for call in record.calls:
            whole = range(record.world_size) if call.description == DEFAULT_GROUP else [rank]
            ranks_of.setdefault(call.group, set()).update(whole)
    return ranks_of


def _first_stall(group: str, ranks: set[int], records: Records) -> Stall | None:
    calls = {
        rank: {call.sequence: call for call in records[rank].calls if call.group == group}
        for rank in sorted(ranks & records.keys())
    }
    oldest = max((min(sequences) for sequences in calls.values() if sequences), default=0)
    open_calls = [
        call.sequence
        for sequences in calls.values()
        for call in sequences.values()
        if not call.retired and call.sequence >= oldest
    ]
    if not open_calls:
        return None
    first = min(open_calls)
    calls_of_first = {rank: sequences[first] for rank, sequences in calls.items() if first in sequences}
    return Stall(first, calls_of_first, tuple(sorted(ranks - calls_of_first.keys())))


def _signature(call: Collective) -> Signature:
    sizes = () if call.operation in UNEVEN else tuple(map(tuple, call.sizes))
    return call.group, call.operation, sizes, tuple(call.dtypes)


def _has_waited(stall: Stall, records: Records) -> bool:
    return all(
        records[rank].at - call.called_at > CERTAIN_AFTER_S and not call.retired for rank, call in stall.calls.items()
    )


# -- ranks that called different collectives -----------------------------------------------------


def _mismatch(stall: Stall, records: Records) -> CollectivesVerdict:
    odd = _odd_ranks({rank: _signature(call) for rank, call in stall.calls.items()}, records)
    usual = [rank for rank in stall.calls if rank not in odd] or [min(odd)]
    call, other = stall.calls[usual[0]], stall.calls[odd[-1]]
    kind = "operation"
    if _comes_next(call, other, records[usual[0]].calls):
        kind = "order"
    elif call.operation == other.operation:
        kind = "dtype" if call.sizes == other.sizes else "size"
    return CollectivesVerdict(kind=kind, ranks=odd, sentence=mismatch(kind, usual, odd, stall.calls, records))


def _odd_ranks(signatures: Mapping[int, Signature], records: Records) -> list[int]:
    """Return the ranks that differ from most; where there is no majority, from their own habit; else all."""
    by_signature: dict[Signature, list[int]] = {}
    for rank, signature in signatures.items():
        by_signature.setdefault(signature, []).append(rank)
    largest = max(by_signature.values(), key=len)
    if 2 * len(largest) > len(signatures):
        return [rank for rank in signatures if rank not in largest]
    expected = {rank: _expected(_open_first(records[rank].calls)) for rank in signatures}
    usual = [rank for rank in signatures if expected[rank] == signatures[rank]]
    odd = [rank for rank in signatures if expected[rank] not in (None, signatures[rank])]
    return odd if usual and odd else list(signatures)


def _open_first(calls: Sequence[Collective]) -> list[Signature]:
    """Return the signatures of the calls before the first that is not over."""
    at = next((index for index, call in enumerate(calls) if not call.retired), len(calls))
    return [_signature(call) for call in calls[:at]]


def _expected(history: Sequence[Signature]) -> Signature | None:
    """Return what followed the same last calls before; None without precedent."""
    for length in range(min(MAX_CONTEXT, len(history) - 1), 0, -1):
        context = history[-length:]
        for at in range(len(history) - length - 1, -1, -1):
            if history[at : at + length] == context:
                return history[at + length]
    return None


def _comes_next(call: Collective, other: Collective, calls: Sequence[Collective]) -> bool:
    """Whether the other rank's call is the one that usually follows this one."""
    later = [later for later in calls if later.group == call.group and later.sequence == call.sequence + 1]
    history = [_signature(earlier) for earlier in calls if earlier.called_at <= call.called_at]
    following = _signature(later[0]) if later else _expected(history)
    return following == _signature(other)


# -- ranks that did not come ---------------------------------------------------------------------


def _absence(stalls: Sequence[Stall], records: Records) -> CollectivesVerdict | None:
    stalls = [stall for stall in stalls if stall.absent]
    waiting = {rank for stall in stalls for rank in stall.waiting}
    for stall in sorted(stalls, key=lambda stall: -len(stall.waiting)):
        absent = [rank for rank in stall.absent if rank not in waiting and rank in records]
        if absent and stall.waiting:
            return _absent(stall, absent, records)
    is_whole = all(rank in records for stall in stalls for rank in stall.absent)
    return _other_group(stalls, records) if len(stalls) > 1 and is_whole else None


def _absent(stall: Stall, absent: Sequence[int], records: Records) -> CollectivesVerdict:
    ranks, kind = _most_telling(absent, records)
    if kind == "left" and len(ranks) > len(stall.waiting) and not any(records[rank].failure for rank in ranks):
        kind = "extra"
    sentence = absence(stall.waiting, ranks, kind, stall.calls, records)
    return CollectivesVerdict(kind=kind, ranks=stall.waiting if kind == "extra" else ranks, sentence=sentence)


def _most_telling(absent: Collection[int], records: Records) -> tuple[list[int], str]:
    """Return the absent ranks with the most certain reason for their absence, and that reason."""
    of_kind: dict[str, list[int]] = {}
    for rank in absent:
        of_kind.setdefault(_reason_for_absence(records[rank]), []).append(rank)
    kind = next(kind for kind in ("size", "left", "loader", "missing") if kind in of_kind)
    return of_kind[kind], kind


def _reason_for_absence(record: RankCollectives) -> str:
    if GLOO_SIZES_DIFFER in record.failure:
        return "size"
    if record.ended:
        return "left"
    return "loader" if record.doing == "data" else "missing"


def _other_group(stalls: Sequence[Stall], records: Records) -> CollectivesVerdict | None:
    """Name the ranks that wait in another process group than most, when all wait for each other."""
    calls = {rank: stall.calls[rank] for stall in stalls for rank in stall.waiting}
    odd = _odd_ranks({rank: _signature(call) for rank, call in calls.items()}, records)
    usual = [rank for rank in calls if rank not in odd] or [min(odd)]
    return CollectivesVerdict(kind="group", ranks=odd, sentence=mismatch("group", usual, odd, calls, records))


# Sentences about collectives: who waits in which call, and who is elsewhere. Pure.

Calls = Mapping[int, Collective]
NOTES = {
    "order": ", which the others call next: it left one out, or calls them in another order",
    "size": ", with another size",
    "dtype": ", with another data type",
    "group": "",
    "operation": "",
}


def rank_list(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2 and 5`."""
    ordered = sorted(ranks)
    runs = [[rank for _, rank in pairs] for _, pairs in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])]
    spans = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{agree(len(ordered), 'rank', 'ranks')} {as_list(spans)}"


def call_name(call: Collective) -> str:
    """`all_reduce #1843`, and its group unless that is the world."""
    if call.description == DEFAULT_GROUP:
        return f"{call.operation} #{call.sequence}"
    name = call.description if call.description not in ("", "undefined") else call.group
    return f"{call.operation} #{call.sequence} of group {name}"


def mismatch(kind: str, usual: Sequence[int], odd: Sequence[int], calls: Calls, records: Records) -> str:
    """Say who waits in which call, and which other one each differing rank called."""
    by_call: dict[str, list[int]] = {}
    for rank in odd:
        if rank not in usual:
            by_call.setdefault(_whole_call(rank, calls, records), []).append(rank)
    others = [f"{rank_list(ranks)} called {call}" for call, ranks in by_call.items()]
    return f"{_waiting(usual, calls, records)}; {'; '.join(others)}{NOTES[kind]}."


def absence(waiting: Sequence[int], absent: Sequence[int], kind: str, calls: Calls, records: Records) -> str:
    """Say who waits in which call, and where the ranks are that did not come."""
    by_place: dict[str, list[int]] = {}
    for rank in absent:
        by_place.setdefault(_whereabouts(kind, records[rank]), []).append(rank)
    others = [f"{rank_list(ranks)} {place}" for place, ranks in by_place.items()]
    return f"{_waiting(waiting, calls, records)}; {'; '.join(others)}."


def _waiting(ranks: Sequence[int], calls: Calls, records: Records) -> str:
    call = _whole_call(ranks[0], calls, records)
    return f"{rank_list(ranks).capitalize()} {agree(len(ranks), 'waits', 'wait')} in {call}"


def _whole_call(rank: int, calls: Calls, records: Records) -> str:
    """`all_reduce #1843 (25 MB, Float, train.py line 88 in step)`."""
    call = calls[rank]
    dtypes = "/".join(dict.fromkeys(call.dtypes))
    details = [size(call.size_bytes) if call.size_bytes else "", dtypes, records[rank].line]
    text = ", ".join(filter(None, details))
    return f"{call_name(call)} ({text})" if text else call_name(call)


def _whereabouts(kind: str, record: RankCollectives) -> str:
    last = record.calls[-1] if record.calls else None
    after = f" after {call_name(last)}" if last else ""
    at = f" ({record.line})" if record.line else ""
    if kind == "size":
        return f"ended in a collective of another size{at}: {record.failure}"
    if record.ended:
        return f"left{after}{at}: {record.failure or 'its script ended'}"
    if not record.is_read:
        return f"has not come and does not answer{at}"
    if kind == "loader":
        return f"has not come: it is still in its data loader{after}{at}"
    return f"never came: it is elsewhere{after}{at}"


# How long ranks waited in their latest collectives for the last rank to come. Pure.


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
