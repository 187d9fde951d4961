"""The message about one or several events, as text and as the JSON of a webhook. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.alerts.rules import Trigger
from domain.masking.masking import masked_text
from domain.text.formats import plural

MOST_LISTED = 20
LONGEST_SENTENCE = 600


@dataclass(frozen=True)
class MessageItem:
    """One event as a message shows it."""

    run_id: str | None
    """None in a test message, and in one about hardware."""
    at: float
    sentence: str


@dataclass(frozen=True)
class Message:
    """What one target receives."""

    id: str
    """The same in each attempt to send it."""
    title: str
    body: str
    content: dict[str, Any]
    """The JSON of a webhook."""
    picture: str | None
    """The curve of the first run as a PNG, in base64."""


def message(
    message_id: str, rule: str, items: Sequence[MessageItem], url: str, picture: bytes | None = None
) -> Message:
    """Compose one message about events of one rule; `url` is the address of the dashboard, `picture` a PNG."""
    encoded = base64.b64encode(picture).decode() if picture else None
    listed = [
        {"run": item.run_id, "at": item.at, "sentence": plain(item.sentence), "url": _link(url, item.run_id, rule)}
        for item in items[:MOST_LISTED]
    ]
    further = len(items) - len(listed)
    lines = [f"{event['sentence']}\n{event['url']}" for event in listed]
    if further:
        lines.append(f"… and {plural(further, 'more event')}.")
    title = f"Rankzero: {rule}" if len(items) == 1 else f"Rankzero: {rule} ({plural(len(items), 'event')})"
    content = {"rule": rule, "events": listed, "further": further, "picture": encoded}
    return Message(message_id, title, "\n\n".join(lines), content, encoded)


def plain(sentence: str) -> str:
    """One line without secrets and control characters, in which no service sees a mention of everybody."""
    line = " ".join(masked_text(sentence).split())
    line = "".join(c if c.isprintable() else "?" for c in line)[:LONGEST_SENTENCE]
    return line.replace("@", "@\u200b").replace("<!", "<\u200b!")


def _link(url: str, run_id: str | None, rule: str) -> str:
    if rule == Trigger.QUARANTINE:
        return f"{url}/nodes"
    return f"{url}/run?id={run_id}" if run_id else url


# When an event is sent, gathered with others, sent again or given up. Pure.

GATHER_S = 60.0
"""After a message, more events of the same rule wait so long and are sent in one."""
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 3600.0
GIVE_UP_S = 24 * 3600.0


class DeliveryState(StrEnum):
    """The state of an event's message."""

    WAITING = "waiting"
    """It will be sent, or sent again."""
    SENDING = "sending"
    """A program is sending it now."""
    SENT = "sent"
    """The receiver accepted it."""
    UNSENT = "not sent"
    """It was given up; `problem` says why."""


class SendOutcome(StrEnum):
    """The outcome of one attempt to send a message."""

    ACCEPTED = "accepted"
    UNAVAILABLE = "unavailable"
    """The receiver did not take it, and may take it later."""
    REFUSED = "refused"
    """The receiver, or a rule of ours, will never accept it."""
    UNCLEAR = "unclear"
    """It may have arrived: there was no answer in time, or the dashboard was killed."""


def state_after(outcome: SendOutcome, happened_at: float, now: float, *, is_repeatable: bool) -> DeliveryState:
    """The state that follows from an outcome.

    `is_repeatable`: the receiver recognises a message that it already has, so an unclear one is sent again."""
    if outcome == SendOutcome.ACCEPTED:
        return DeliveryState.SENT
    may_help = outcome == SendOutcome.UNAVAILABLE or (outcome == SendOutcome.UNCLEAR and is_repeatable)
    return DeliveryState.WAITING if may_help and now - happened_at < GIVE_UP_S else DeliveryState.UNSENT


def pause_s(tries: int) -> float:
    """Seconds until the next attempt after so many: 10, 20, 40, … up to an hour."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries - 1, 20)))
