"""When an event is sent, gathered with others, sent again or given up. Pure."""

from __future__ import annotations

from enum import StrEnum

GATHER_S = 60.0
"""After a message, further events of the same rule wait so long and are sent in one."""
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


def state_after(
    outcome: SendOutcome, happened_at: float, now: float, *, is_repeatable: bool
) -> DeliveryState:
    """The state that follows from an outcome.

    `is_repeatable`: the receiver recognises a message that it already has, so an unclear one is sent again."""
    if outcome == SendOutcome.ACCEPTED:
        return DeliveryState.SENT
    may_help = outcome == SendOutcome.UNAVAILABLE or (outcome == SendOutcome.UNCLEAR and is_repeatable)
    return DeliveryState.WAITING if may_help and now - happened_at < GIVE_UP_S else DeliveryState.UNSENT


def pause_s(tries: int) -> float:
    """Seconds until the next attempt after so many: 10, 20, 40, … up to an hour."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries - 1, 20)))
