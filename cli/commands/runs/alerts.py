"""`rankzero alert`: set, list, test and remove alerts about runs."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from cli.server.client import ServerClient
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_json, print_list, print_outcome, say, warn, with_person
from domain.alerts.rules import Act, act_in_words
from domain.alerts.targets import BROWSER
from domain.choices import RUN_ID
from domain.text import formats
from domain.text.columns import Column, Columns, Figure

PATH = "/api/alerts"
POLL_S = 0.5
TEST_LIMIT_S = 60.0
UNSEEN = "No open tab of the dashboard may show notifications; it waits for one for a day."

AlertId = Annotated[str, typer.Argument(metavar="ID", help="An alert's id.", show_default=False)]
alert_app = typer.Typer(no_args_is_help=True)


@alert_app.callback()
def alert() -> None:
    """Set, list, test and remove alerts about runs."""


@alert_app.command()
def add(
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE", show_default=False,
            help="failed, finished, hung, loss-nan, waits=30m, disk-full=2h, idle-gpu=30m, quarantine, "
            "spike[:SERIES] or no-improvement=STEPS[:SERIES].",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="https://… for a signed webhook, an address of Apprise, or browser; - reads it.",
            show_default=False,
        ),
    ],
    project: Annotated[str | None, typer.Option(help="Only runs of this project.", show_default=False)] = None,
    run: Annotated[str | None, typer.Option(help="Only this run.", show_default=False)] = None,
    act: Annotated[
        Act | None,
        typer.Option(
            help="Also end the run, or roll it back: it resumes from its last good checkpoint.", show_default=False
        ),
    ] = None,
    lr_factor: Annotated[
        float | None, typer.Option(help="Of the learning rate after a rollback: 0.5 if not set.", show_default=False)
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Send a message to an address whenever a run meets a rule."""
    target = typer.get_text_stream("stdin").readline().strip() if to == "-" else to
    body = {
        "rule": rule,
        "target": target,
        "project": project,
        "run": run,
        "act": act,
        "lr_factor": lr_factor,
    }
    added = server_at(data).post(PATH, body)
    if as_json:
        print_json(added)
        return
    acts = act_in_words(added["act"], added["lr_factor"])
    does = f"{acts} and tells" if acts else "to"
    tries = f"`rankzero alert test {added['id']}` tries it."
    say(f"Alert {added['id']}: {added['rule']} {does} {added['target']}. {tries}")
    if added["secret"]:
        warn(f"Its messages are signed with this secret ({formats.SHOWN_ONCE}): {added['secret']}")


@alert_app.command(name="list")
def list_alerts(data: Data = None, as_json: Json = False) -> None:
    """List alerts, without the secrets in their addresses."""
    listed = server_at(data).get(PATH)
    none = "No alert is set. `rankzero alert add failed --to ADDRESS` sets one."
    print_list(with_person(columns_of(time.time()), listed), listed, as_json, none)


@alert_app.command()
def test(alert_id: AlertId, data: Data = None, as_json: Json = False) -> None:
    """Send a test message and wait until it is sent. Raises CommandFailed when it is not."""
    server = server_at(data)
    path = _path(alert_id)
    before = server.get(path)
    server.post(f"{path}/test")
    after = _settled(server, path, before["last_sent_at"])
    if after["last_sent_at"] == before["last_sent_at"]:
        why = UNSEEN if after["target"] == BROWSER else "Its target is busy; try again."
        raise CommandFailed(f"The message was not sent. {after['problem'] or why}")
    print_outcome(after, as_json, f"A test message was sent to {after['target']}.")


@alert_app.command()
def remove(alert_id: AlertId, data: Data = None, as_json: Json = False) -> None:
    """Remove an alert; its waiting messages are not sent."""
    removed = server_at(data).delete(_path(alert_id))
    print_outcome(removed, as_json, f"Alert {removed['id']} is removed.")


def columns_of(now: float) -> Columns[Any]:
    """Return the columns of the list of alerts."""
    return [
        Column("id"), Column("rule"), Column("does", lambda alert: act_in_words(alert.act, alert.lr_factor) or "tells"),
        Column("target"), Column("only", lambda alert: alert.run or (alert.project and f"project {alert.project}")),
        Column("last sent", lambda alert: formats.ago(alert.last_sent_at, now)), Figure("waiting"), Column("problem"),
    ]  # fmt: skip


def _path(alert_id: str) -> str:
    """Return the API's path of an alert. Raises CommandFailed for an id that none can have."""
    if not RUN_ID.fullmatch(alert_id):
        raise CommandFailed(f"There is no alert {alert_id!r}; `rankzero alert list` lists them.")
    return f"{PATH}/{alert_id}"


def _settled(server: ServerClient, path: str, last_sent_at: float | None) -> dict[str, Any]:
    """Return the alert once its message is sent, or there is a problem with it, or time is up."""
    until = time.monotonic() + TEST_LIMIT_S
    while True:
        alert: dict[str, Any] = server.get(path)
        is_done = alert["last_sent_at"] != last_sent_at or alert["problem"] or not alert["waiting"]
        if is_done or time.monotonic() > until:
            return alert
        time.sleep(POLL_S)
