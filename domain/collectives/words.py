"""Sentences about collectives: who waits in which call, and who is elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from domain.collective_records import DEFAULT_GROUP, Collective, RankCollectives
from domain.text.formats import agree, as_list, size

Calls = Mapping[int, Collective]
Records = Mapping[int, RankCollectives]
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
    runs = [
        [rank for _, rank in pairs]
        for _, pairs in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])
    ]
    spans = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{agree(len(ordered), 'rank', 'ranks')} {as_list(spans)}"


def call_name(call: Collective) -> str:
    """`all_reduce #1843`, and its group where that is not the whole world."""
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
