"""Brings the code of a launch to the dashboard: chosen and packed here, sent only when it is not there yet."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.server.client import ServerClient
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import warn
from dashboard.snapshots.git_address import is_git_address
from dashboard.snapshots.refusal import CodeRefused
from domain.launch.plan import recipe_names

if TYPE_CHECKING:  # no other command waits for what only a launch needs
    from dashboard.snapshots.bringing import Brought, CodeWish

Spec = dict[str, Any]


def with_code(server: ServerClient, spec: Spec) -> Spec:
    """The specification with its code kept on the dashboard, as far as this machine has the code."""
    from dashboard.snapshots.bringing import bring

    wish = _wish(spec)
    if wish is None:
        return spec
    with tempfile.TemporaryDirectory(prefix="rankzero-") as folder:
        try:
            brought = bring(wish, Path(folder) / "archive", _limit_bytes(server))
        except CodeRefused as refused:
            raise CommandFailed(str(refused)) from None
        _tell(brought.origin.notes)
        _send(server, brought)
    return spec | {"snapshot": brought.packed.sha256} | ({"entry": brought.entry} if brought.entry else {})


def preview(server: ServerClient, spec: Spec) -> Any:
    """What the launch would be; nothing is cloned, packed or sent."""
    from dashboard.snapshots.bringing import survey

    wish = _wish(spec)
    if wish is None:
        return server.post("/api/preview", spec)
    try:
        choice = survey(wish, _limit_bytes(server))
    except CodeRefused as refused:
        raise CommandFailed(str(refused)) from None
    answer = server.post("/api/preview?brought=true", spec)
    notes = choice.origin.notes if choice else ["The repository is cloned at launch, and its commit kept."]
    return answer | {"warnings": [*answer["warnings"], *notes]}


def _wish(spec: Spec) -> CodeWish | None:
    """None where nothing is to be brought from here: recipes, runs in place, paths of other machines."""
    from dashboard.snapshots.bringing import CodeWish

    target = spec["target"]
    if target in recipe_names():
        return None
    if spec.get("workdir"):
        if is_git_address(target):
            raise CommandFailed("workdir: a git address has no place to run in; leave out --workdir.", 2)
        _tell([f"It runs in place in {spec['workdir']}: its code is not kept with the run."])
        return None
    if not is_git_address(target) and not Path(target).exists():
        return None
    links = frozenset(spec.get("links", ()))
    return CodeWish(target, spec.get("entry"), spec.get("module"), spec.get("ref"), links)


def _limit_bytes(server: ServerClient) -> int:
    return int(server.get("/api/info")["snapshot_limit_bytes"])


def _send(server: ServerClient, brought: Brought) -> None:
    path = f"/api/snapshots/{brought.packed.sha256}"
    if not server.has(path):
        server.put_file(path, brought.packed.path)
    server.put(f"{path}/origin", brought.origin.model_dump(mode="json"))


def _tell(notes: list[str]) -> None:
    for note in notes:
        warn(f"Note: {note}")
