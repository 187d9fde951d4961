"""Parts that `scale` and `sweep` share: the options of `launch`, `show` and `stop`, and waiting for the end."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection
from typing import Any

from cli.commands.launch import launch
from cli.server.client import ServerClient, ServerUnreachable
from cli.server.following import PATIENCE_S
from cli.terminal.errors import CommandFailed
from domain.choices import RUN_ID

POLL_S = 2.0


def with_options_of_launch(besides: Collection[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `launch` beside its own, without those named."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
        names = {p.name for p in own} | set(besides)
        shared = [p for p in inspect.signature(launch, eval_str=True).parameters.values() if p.name not in names]
        parameters = sorted([*shared, *own], key=lambda p: (p.name != "context", p.default is not p.empty))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def existing(server: ServerClient, path: str, command: str, action: str, ids: list[str]) -> Any:
    """Return the document that `show` or `stop` names, after its stop was requested. Raises CommandFailed."""
    noun = "scaling study" if command == "scale" else "sweep"
    if len(ids) != 1:
        raise CommandFailed(f"{command} {action} takes one {noun}: `rankzero {command} {action} ID`.", 2)
    if not RUN_ID.fullmatch(ids[0]):
        raise CommandFailed(f"There is no {noun} {ids[0]!r}.")
    document = f"{path}/{ids[0]}"
    return server.post(f"{document}/stop") if action == "stop" else server.get(document)


def wait_until_ended(server: ServerClient, path: str, command: str, started: str) -> dict[str, Any]:
    """Poll until it has ended and return it, retrying while the dashboard is away. Raises CommandFailed."""
    try:
        while True:
            try:
                document: dict[str, Any] = server.get(f"{path}/{started}")
                if document["state"] not in ("running", "stopping"):
                    return document
                time.sleep(POLL_S)
            except ServerUnreachable:
                time.sleep(PATIENCE_S)
    except KeyboardInterrupt:
        sentence = f"It continues; `rankzero {command} stop {started}` stops it."
        raise CommandFailed(sentence, 130) from None
