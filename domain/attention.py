"""Decide which runs need a person now: one rule for the API, the table of runs and a run's page."""

from __future__ import annotations

import math
from dataclasses import replace

from domain.messages import LIVE_STATES, State
from domain.views import RunView

FAILED_LATELY_S = 24 * 3600.0
HUNG, NOT_A_NUMBER, NO_CONTACT, WARNING, FAILED = "hung", "NaN loss", "no contact", "warning", "failed"
_KINDS = {"hung": HUNG, "loss is not a number": NOT_A_NUMBER}


def with_attention(run: RunView, now: float) -> RunView:
    """The run with its `attention` field set; nothing can be done here about imported ones."""
    if run.imported_from:
        return run
    why = attention(run.state, run.finding, run.lost_contact, run.last_loss, run.ended_at, now)
    return replace(run, attention=why) if why else run


def attention(
    state: State,
    finding: str | None,
    lost_contact: bool,
    last_loss: float | None,
    ended_at: float | None,
    now: float,
) -> str | None:
    """Why a run needs a person, in a word or two; None when it does not.

    `finding` is the line `RunView.finding`. A live run needs attention for a hang, a non-finite loss, silent nodes,
    or any other finding, in this order. An ended run needs it for a day when it failed, or succeeded with a
    non-finite loss, but not when a person stopped it."""
    has_bad_loss = last_loss is not None and not math.isfinite(last_loss)
    if state in LIVE_STATES:
        return _of_live(finding, lost_contact, has_bad_loss)
    if ended_at is None or now - ended_at > FAILED_LATELY_S:
        return None
    if state == State.FAILED:
        return FAILED
    return NOT_A_NUMBER if state == State.SUCCEEDED and has_bad_loss else None


def _of_live(finding: str | None, lost_contact: bool, has_bad_loss: bool) -> str | None:
    kind = _KINDS.get(finding.partition(":")[0]) if finding else None
    if kind == HUNG:
        return HUNG
    if has_bad_loss or kind == NOT_A_NUMBER:
        return NOT_A_NUMBER
    if lost_contact:
        return NO_CONTACT
    return WARNING if finding else None
