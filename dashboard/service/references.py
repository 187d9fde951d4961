"""The one place that resolves the runs, checkpoints, code, secrets and projects of a request, under the actor's rights.

What is hidden is answered as what does not exist. Paths are resolved where they are read, by `dashboard/paths.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from dashboard.service.people_secrets import Secrets
from dashboard.snapshots.stored_snapshots import Snapshots
from db import acting
from db.engine import Store
from db.people.ownership import DEFAULT_PROJECT
from db.people.permission import permitted_run
from db.runs import run_requests
from domain.people.references import Named, references_in
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest, NoSuchReference
from domain.spec import RunSpec


class References:
    """Resolves the names in requests to one dashboard; safe to use from any thread."""

    def __init__(self, store: Store, snapshots: Snapshots, secrets: Secrets) -> None:
        self._store, self._snapshots, self._secrets = store, snapshots, secrets
        self._resolvers: Mapping[Named, Callable[[Action, str], None]] = {
            Named.PROJECT: self.check_project,
            Named.RUN: self.check_run,
            Named.CHECKPOINT: self._check_checkpoint,
            Named.SNAPSHOT: self._check_snapshot,
        }

    def check_request(self, request: BaseModel) -> None:
        """Check every marked field of a request. Raises NoSuchReference, NoSuchRun, Denied, InvalidRequest."""
        for field, mark in references_in(type(request)).items():
            if (resolve := self._resolvers.get(mark.named)) is not None:
                for name in _named(getattr(request, field)):
                    resolve(mark.action, name)
        if isinstance(request, RunSpec):
            self._secrets.check_spec(request)  # which of a name it is depends on the project

    def problem(self, spec: RunSpec) -> str | None:
        """Return the sentence with which a launch of the spec would be refused, None where it names what is there.

        Raises Denied."""
        try:
            self.check_request(spec)
        except InvalidRequest as error:
            return str(error)
        return None

    def check_run(self, action: Action, run_id: str) -> None:
        """Check that the actor may do this to a run. Raises NoSuchRun, also where it is hidden from them; Denied."""
        with self._store.read() as session:
            permitted_run(session, action, run_id)

    def check_project(self, action: Action, project: str) -> None:
        """Check that the actor may do this in a project, an empty name being that of the default one. Raises Denied."""
        acting.rights().check(action, project or DEFAULT_PROJECT)

    def _check_checkpoint(self, action: Action, resume: str) -> None:
        """Check RUN or RUN:CHECKPOINT, whose run the actor may see. Raises NoSuchReference."""
        run_requests.check_resume(self._store, resume)

    def _check_snapshot(self, action: Action, sha256: str) -> None:
        """Check that the actor sees a run with this code, or sent it, and hold the code for a launch.

        Raises NoSuchReference."""
        if self._snapshots.hold(sha256) is None:
            raise NoSuchReference("snapshot", f"there is no snapshot {sha256[:12]}… here; send it first.")


def _named(value: Any) -> list[str]:
    """Return what the value of a field names; nothing where it is left out."""
    return [value] if isinstance(value, str) else list(value or ())
