"""Read torch's Flight Recorder dumps. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from domain.collective_records import MAX_CALLS, Collective

_COMMUNICATION = re.compile(r"gloo|nccl|c10d|Dist\w*Error|ProcessGroup|Timed out|remote worker", re.IGNORECASE)


def parse_calls(dump: dict[str, Any]) -> list[Collective]:
    """Return the latest calls of a dump, oldest first, without those between two ranks."""
    calls = []
    for entry in dump.get("entries") or ():
        with suppress(KeyError, TypeError, ValueError, IndexError):
            if not entry["is_p2p"]:
                calls.append(_parse_call(entry))
    return calls[-MAX_CALLS:]


def fail_last(calls: list[Collective], failure: str) -> list[Collective]:
    """Reopen the last call where it failed: torch retires it with its error."""
    if not calls or not _COMMUNICATION.search(failure):
        return calls
    return [*calls[:-1], calls[-1].model_copy(update={"retired": False})]


def _parse_call(entry: dict[str, Any]) -> Collective:
    group, description = entry["process_group"]
    return Collective(
        group=group,
        description=description,
        sequence=entry["collective_seq_id"],
        operation=entry["profiling_name"].partition(":")[2] or entry["profiling_name"],
        sizes=entry["input_sizes"][:64],
        dtypes=entry["input_dtypes"][:64],
        retired=entry["retired"] or entry["state"] == "completed",
        called_at=entry["time_created_ns"] / 1e9,
    )
