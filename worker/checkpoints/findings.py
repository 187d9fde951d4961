"""Findings about checkpoints that an ended attempt left without a copy."""

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
    """A checkpoint that exists on the node and was not copied."""

    name: str
    """Relative to the attempt's directory."""
    size_bytes: int
    missing: str
    """What is wrong with it, as the rest of a sentence."""
    has_earlier: bool = False
    """Whether an earlier version of it was copied."""
    is_whole: bool = False
    """Whether it is complete, but there was no room for a copy, or it could not be read."""
    is_linked: bool = False
    """Whether it is a hard link to a file outside the run's directory."""

    @property
    def kind(self) -> str:
        """The kind of its finding."""
        return LINKED if self.is_linked else NOT_TAKEN if self.is_whole else KIND


_ADVICE = {
    KIND: (
        "The attempt ended while this was being saved, or the script never finished it. It cannot be loaded, so it was "
        "not taken; it still lies on the node. A resume begins at the last whole one.",
        "Save under a temporary name and rename it (os.replace) when it is whole. Where a stop cut it off, finish "
        "saving on SIGTERM, and give it time for that with --stop-grace.",
    ),
    NOT_TAKEN: (
        "It is whole, but it lies on the node alone; it can be neither downloaded nor resumed from.",
        "Free some space on the node's disk for the next attempt; this file can be fetched by hand.",
    ),
    LINKED: (
        "A hard link shows the content of a file that may belong to somebody else, so it was neither copied nor "
        "listed. Links to files of the run's own directory are taken.",
        "Copy the file into the run's directory (cp, shutil.copy) instead of linking it there.",
    ),
}
"""What each kind of finding means, and what to do."""


def incomplete_findings(unfinished: Sequence[Unfinished]) -> list[Finding]:
    """At an attempt's end, one finding each for cut, for uncopied and for hard-linked checkpoints."""
    return [
        Finding(kind=kind, evidence=_evidence(checkpoints), meaning=meaning, mend=mend)
        for kind, (meaning, mend) in _ADVICE.items()
        if (checkpoints := [checkpoint for checkpoint in unfinished if checkpoint.kind == kind])
    ]


def _evidence(unfinished: Sequence[Unfinished]) -> str:
    sentences = [_sentence(checkpoint) for checkpoint in unfinished[:MOST_NAMED]]
    if more := len(unfinished) - len(sentences):
        sentences.append(f"And {more} more.")
    return " ".join(sentences)


def _sentence(checkpoint: Unfinished) -> str:
    name = checkpoint.name if len(checkpoint.name) <= 300 else f"…{checkpoint.name[-299:]}"
    if checkpoint.is_linked:
        return f"{name} is a hard link to a file outside the run's directory."
    sentence = f"{name}: {checkpoint.size_bytes} bytes are there, and {checkpoint.missing}."
    return f"{sentence} An earlier version of it was taken." if checkpoint.has_earlier else sentence
