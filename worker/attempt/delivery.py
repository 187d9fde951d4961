"""What an ended attempt has left to send: its end is told after a moment, the rest follows beside the others."""

from __future__ import annotations

from dataclasses import dataclass

from domain.messages import Delivery, Finding
from domain.text.formats import part_of

PATIENCE_S = 3.0
"""The end waits so long for what is sent quickly, which spares most readers the difference."""
TELL_EVERY_S = 2.0
RATE_AFTER_S = 1.0


@dataclass(frozen=True)
class Left:
    """What has been sent and what has not, in bytes, and of which kinds the rest is."""

    sent_bytes: int
    total_bytes: int
    has_points: bool
    checkpoints: tuple[str, ...]
    """Names of those whose copies wait to be sent."""
    awaits_checkpoints: bool
    """Whether some may still be copied or sent."""

    @classmethod
    def nothing(cls) -> Left:
        """Of an attempt that has no data, or whose data the server refuses."""
        return cls(0, 0, has_points=False, checkpoints=(), awaits_checkpoints=False)


class OpenDelivery:
    """When one attempt's end is told, and how the sending of what it has left gets on."""

    def __init__(self, *, is_told: bool) -> None:
        """`is_told`: an earlier worker has told the end, and not sent everything."""
        self.is_told = is_told
        self.is_ended = False
        """Whether the rest is to stay on the node."""
        self._over_since: float | None = None
        self._began: tuple[float, int] | None = None
        self._told_at = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether the server is to be told of the end, or how much is left by now."""
        self._over_since = now if self._over_since is None else self._over_since
        is_late = self.is_told or now - self._over_since >= PATIENCE_S
        return is_late and now - self._told_at >= TELL_EVERY_S

    def wait_again(self) -> None:
        """Wait another moment: the server was away."""
        self._over_since = None

    def message(self, left: Left, now: float) -> Delivery:
        """What the server is told now."""
        self._told_at = now
        self._began = self._began or (now, left.sent_bytes)
        return Delivery(
            sent_bytes=left.sent_bytes,
            total_bytes=left.total_bytes,
            seconds_left=self._seconds_left(left, now),
            has_points=left.has_points,
            has_checkpoints=left.awaits_checkpoints,
        )

    def _seconds_left(self, left: Left, now: float) -> float | None:
        began_at, before_bytes = self._began or (now, left.sent_bytes)
        sent_bytes = left.sent_bytes - before_bytes
        if now - began_at < RATE_AFTER_S or sent_bytes <= 0:
            return None
        return (left.total_bytes - left.sent_bytes) * (now - began_at) / sent_bytes


NOT_SENT = "not sent"
MOST_NAMED = 10


def not_sent(left: Left, node: str, folder: object) -> list[Finding]:
    """The finding on what stays on its node because somebody ended the sending; none where all has been sent."""
    sentences = []
    if unsent_bytes := left.total_bytes - left.sent_bytes:
        amount = part_of(unsent_bytes, left.total_bytes)
        sentences.append(f"{amount} of logs, event files and checkpoints stay on node {node}: {folder}.")
    if left.has_points:
        sentences.append(f"The last points of its curves were not read; they are in its files on node {node}.")
    if left.checkpoints:
        sentences.append(f"Checkpoints among it: {', '.join(left.checkpoints[:MOST_NAMED])}.")
    elif left.awaits_checkpoints:
        sentences.append(f"Checkpoints that were not copied before stay there too: {folder}.")
    if not sentences:
        return []
    return [
        Finding(
            kind=NOT_SENT,
            evidence=" ".join(sentences),
            meaning="Its sending was ended. Nothing on the node was deleted.",
            fix="Copy from the node what you need, before its worker or somebody else clears the folder.",
        )
    ]
