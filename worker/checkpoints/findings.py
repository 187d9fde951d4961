"""Pure: what an attempt left of checkpoints that were not taken, as findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.messages import Finding

KIND = "checkpoint not whole"
NOT_TAKEN = "checkpoint not taken"
LINKED = "checkpoint is a hard link"
MOST_NAMED = 10


@dataclass(frozen=True)
class Unfinished:
    """A checkpoint that is there and was not taken."""

    name: str
    """Relative to the attempt's directory."""
    size_bytes: int
    missing: str
    """The rest of a sentence about it."""
    had_whole: bool = False
    """An earlier version of it was taken."""
    is_whole: bool = False
    """There was no room for a copy, or it could not be read."""
    is_linked: bool = False
    """It is a hard link to a file outside the run's directory."""


def incomplete_findings(unfinished: Sequence[Unfinished]) -> list[Finding]:
    """One finding for all that were not whole, one for all that could not be copied, one for hard links.

    For an attempt's end."""
    linked = [each for each in unfinished if each.is_linked]
    cut = [each for each in unfinished if not each.is_whole and not each.is_linked]
    whole = [each for each in unfinished if each.is_whole and not each.is_linked]
    found = []
    if cut:
        meaning = (
            "The attempt ended while this was being saved, or the script never finished it. It cannot be "
            "loaded, so it was not taken; it still lies on the node. A resume begins at the last whole one."
        )
        mend = (
            "Save under a temporary name and rename it (os.replace) when it is whole. Where a stop cut it "
            "off, finish saving on SIGTERM, and give it time for that with --stop-grace."
        )
        found.append(Finding(kind=KIND, evidence=_evidence(cut), meaning=meaning, mend=mend))
    if whole:
        meaning = "It is whole, but it lies on the node alone; it can be neither downloaded nor resumed from."
        mend = "Free some space on the node's disk for the next attempt; this file can be fetched by hand."
        found.append(Finding(kind=NOT_TAKEN, evidence=_evidence(whole), meaning=meaning, mend=mend))
    if linked:
        meaning = (
            "A hard link shows the content of a file that may belong to somebody else, so it was neither copied nor "
            "listed. Links to files of the run's own directory are taken."
        )
        mend = "Copy the file into the run's directory (cp, shutil.copy) instead of linking it there."
        found.append(Finding(kind=LINKED, evidence=_evidence(linked), meaning=meaning, mend=mend))
    return found


def _evidence(unfinished: Sequence[Unfinished]) -> str:
    told = [_told(each) for each in unfinished[:MOST_NAMED]]
    if more := len(unfinished) - len(told):
        told.append(f"And {more} more.")
    return " ".join(told)


def _told(each: Unfinished) -> str:
    name = each.name if len(each.name) <= 300 else f"…{each.name[-299:]}"
    if each.is_linked:
        return f"{name} is a hard link to a file outside the run's directory."
    said = f"{name}: {each.size_bytes} bytes are there, and {each.missing}."
    return f"{said} An earlier version of it was taken." if each.had_whole else said
