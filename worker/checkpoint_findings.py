"""Pure: what an attempt left of checkpoints that were never whole, as a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from db.states import Finding

KIND = "checkpoint not whole"
MOST_NAMED = 10


@dataclass(frozen=True)
class Unfinished:
    """A checkpoint that is there, and not whole."""

    name: str
    """Relative to the attempt's directory."""
    size_bytes: int
    missing: str
    """The rest of a sentence about it."""
    had_whole: bool = False
    """An earlier version of it was taken."""


def incomplete_findings(unfinished: Sequence[Unfinished]) -> list[Finding]:
    """One finding for all of them; none where everything was whole. For the end of an attempt."""
    if not unfinished:
        return []
    told = [_told(each) for each in unfinished[:MOST_NAMED]]
    if more := len(unfinished) - len(told):
        told.append(f"And {more} more.")
    return [
        Finding(
            kind=KIND,
            evidence=" ".join(told),
            meaning=(
                "The attempt ended while this was being saved, or the script never finished it. It cannot be "
                "loaded, so it was not taken; it still lies on the node. A resume begins at the last whole one."
            ),
            mend=(
                "Save under a temporary name and rename it (os.replace) when it is whole. Where a stop cut it "
                "off, finish saving on SIGTERM, and give it time for that with --stop-grace."
            ),
        )
    ]


def _told(each: Unfinished) -> str:
    name = each.name if len(each.name) <= 300 else f"…{each.name[-299:]}"
    said = f"{name}: {each.size_bytes} bytes are there, and {each.missing}."
    return f"{said} An earlier version of it was taken." if each.had_whole else said
