"""`rankzero wait`: return when a run has ended, a finding comes, or a figure reaches a value."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.durations import seconds
from cli.server.client import ServerClient, ServerUnreachable
from cli.server.following import describe
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal import CommandFailed, print_outcome, warn
from domain.clock import SYSTEM_CLOCK
from domain.waiting import ENDED, EXAMPLE, FINDING, NoCondition, answers, parse_until

TIME_OUT = 3
"""The exit code where the condition has not come in time."""


def wait(
    run: RunId,
    until: Annotated[str, typer.Option("--until", metavar="COND", help=f"{EXAMPLE}; also with `and`, `or`.")] = ENDED,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Give up after this time (90, 30m, 8h): exit code 3."),
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Wait for a run's end, a finding, or a figure. Raises CommandFailed."""
    server = server_at(data)
    longest_s = None if timeout is None else seconds(timeout, "--timeout")
    _check(until)
    try:
        last = _last_answer(server, run, until, longest_s)
        waited_for = server.get(run_path(run))
    except KeyboardInterrupt:
        raise CommandFailed(f"Run {run} continues; `rankzero stop {run}` stops it.", 130) from None
    print_outcome(waited_for, as_json, f"{run} ({waited_for['name']}): {describe(waited_for, time.time())}")
    if not last["is_met"]:
        raise _failure(run, until, timeout, has_ended=last["reached"] == "ended")


def _check(until: str) -> None:
    """Check that this is a condition. Raises CommandFailed."""
    try:
        parse_until(until)
    except NoCondition as error:
        raise CommandFailed(f"--until: {error}", 2) from None


def _last_answer(server: ServerClient, run: str, until: str, longest_s: float | None) -> Mapping[str, Any]:
    """Ask until the condition holds, the run has ended or the time is over. Raises CommandFailed."""

    def ask(wait_s: float, since: str) -> Mapping[str, Any]:
        news: Mapping[str, Any] = server.get(run_path(run, "wait"), until=until, timeout=wait_s, since=since or None)
        away.is_noted = False
        return news

    away = _Away()
    last: Mapping[str, Any] = {}
    try:
        for last in answers(ask, longest_s, SYSTEM_CLOCK, ServerUnreachable, away.note):
            _tell(last, until)
    except ServerUnreachable as error:
        raise CommandFailed(str(error), TIME_OUT) from None
    return last


class _Away:
    """Says once that the dashboard is away."""

    is_noted = False

    def note(self, error: Exception) -> None:
        """Say so unless that was said."""
        if not self.is_noted:
            warn(f"{error} Waiting for it.")
        self.is_noted = True


def _tell(news: Mapping[str, Any], until: str) -> None:
    """Print new findings, which may matter although something else is awaited."""
    for finding in news.get("findings", ()) if until != FINDING else ():
        warn(f"{finding['kind']}: {finding['evidence']}")


def _failure(run: str, until: str, timeout: str | None, has_ended: bool) -> CommandFailed:
    if has_ended:
        return CommandFailed(f"Run {run} has ended, and {until!r} never came.")
    return CommandFailed(f"{until!r} has not come within {timeout}; run {run} continues.", TIME_OUT)
