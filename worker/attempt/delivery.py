"""Delivers what an ended attempt has not sent yet: its end is reported after a moment, the data follows."""

from __future__ import annotations

from dataclasses import dataclass

from domain.messages import Delivery, Finding
from domain.text.formats import part_of

PATIENCE_S = 3.0
"""Data that is sent within this time is sent before the end is reported: most ends need no second report."""
REPORT_EVERY_S = 2.0
RATE_AFTER_S = 1.0


@dataclass(frozen=True)
class Remaining:
    """How much of an ended attempt's data is sent, in bytes, and which kinds of it are not."""

    sent_bytes: int
    total_bytes: int
    has_points: bool
    checkpoints: tuple[str, ...]
    """Names of those whose copies wait to be sent."""
    awaits_checkpoints: bool
    """Whether some may still be copied or sent."""


NOTHING = Remaining(0, 0, has_points=False, checkpoints=(), awaits_checkpoints=False)
"""For an attempt that has no data, or whose data the server refuses."""


class OpenDelivery:
    """Tells when to report one attempt's end, and how the sending of its remaining data progresses."""

    def __init__(self, *, is_reported: bool) -> None:
        """`is_reported`: an earlier worker has reported the end, and not sent everything."""
        self.is_reported = is_reported
        self.is_ended = False
        """Whether a person has ended the sending: the remaining data stays on the node."""
        self._over_since: float | None = None
        self._began: tuple[float, int] | None = None
        self._reported_at = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether to report the end, or how much of the data remains by now."""
        self._over_since = now if self._over_since is None else self._over_since
        is_late = self.is_reported or now - self._over_since >= PATIENCE_S
        return is_late and now - self._reported_at >= REPORT_EVERY_S

    def wait_again(self) -> None:
        """Wait another moment before the first report: the server was away."""
        self._over_since = None

    def message(self, remaining: Remaining, now: float) -> Delivery:
        """Return the progress to report now."""
        self._reported_at = now
        self._began = self._began or (now, remaining.sent_bytes)
        return Delivery(
            sent_bytes=remaining.sent_bytes,
            total_bytes=remaining.total_bytes,
            seconds_left=self._seconds_left(remaining, now),
            has_points=remaining.has_points,
            has_checkpoints=remaining.awaits_checkpoints,
        )

    def _seconds_left(self, remaining: Remaining, now: float) -> float | None:
        began_at, before_bytes = self._began or (now, remaining.sent_bytes)
        sent_bytes = remaining.sent_bytes - before_bytes
        if now - began_at < RATE_AFTER_S or sent_bytes <= 0:
            return None
        return (remaining.total_bytes - remaining.sent_bytes) * (now - began_at) / sent_bytes


NOT_SENT = "not sent"
MOST_NAMED = 10


def not_sent(remaining: Remaining, node: str, folder: object) -> list[Finding]:
    """The finding on the data that stays on its node because the sending was ended; none where all is sent."""
    sentences = []
    if unsent_bytes := remaining.total_bytes - remaining.sent_bytes:
        amount = part_of(unsent_bytes, remaining.total_bytes)
        sentences.append(f"{amount} of logs, event files and checkpoints stay on node {node}: {folder}.")
    if remaining.has_points:
        sentences.append(f"The last points of its curves were not read; they are in its files on node {node}.")
    if remaining.checkpoints:
        sentences.append(f"Checkpoints included: {', '.join(remaining.checkpoints[:MOST_NAMED])}.")
    elif remaining.awaits_checkpoints:
        sentences.append(f"Checkpoints not copied before stay there too: {folder}.")
    if not sentences:
        return []
    return [
        Finding(
            kind=NOT_SENT,
            evidence=" ".join(sentences),
            meaning="Its sending was ended. Nothing on the node was deleted.",
            fix="Copy what you need from the node before its worker or anyone else clears the folder.",
        )
    ]
