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
    """Whether it is complete, but there was no space for a copy, or it could not be read."""
    is_linked: bool = False
    """Whether it is a hard link to a file outside the run's directory."""

    @property
    def kind(self) -> str:
        """The kind of its finding."""
        return LINKED if self.is_linked else NOT_TAKEN if self.is_whole else KIND


_ADVICE = {
    KIND: (
        "The attempt ended while this was being saved, or the script never finished it. It cannot be loaded, so it was "
        "not stored; it is still on the node. A resume starts from the last complete one.",
        "Save under a temporary name and rename it (os.replace) when it is complete. If a stop interrupted it, "
        "finish saving on SIGTERM, and allow more time with --stop-grace.",
    ),
    NOT_TAKEN: (
        "It is complete, but only on the node: it can be neither downloaded nor resumed from.",
        "Free some space on the node's disk for the next attempt; copy this file from the node by hand.",
    ),
    LINKED: (
        "A hard link shows the content of a file that may belong to somebody else, so it was neither copied nor "
        "listed. Links to files in the run's own directory are accepted.",
        "Copy the file into the run's directory (cp, shutil.copy) instead of linking it there.",
    ),
}
"""What each kind of finding means, and what to do."""


def incomplete_findings(unfinished: Sequence[Unfinished]) -> list[Finding]:
    """At an attempt's end, one finding each for cut, for uncopied and for hard-linked checkpoints."""
    return [
        Finding(kind=kind, evidence=_evidence(checkpoints), meaning=meaning, fix=fix)
        for kind, (meaning, fix) in _ADVICE.items()
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
    return f"{sentence} An earlier version of it was stored." if checkpoint.has_earlier else sentence
