"""Changes of many runs at once, carried out here one run after another, whether or not a page still looks."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from dashboard.errors import Rejection
from dashboard.service.service import Service
from db import acting
from db.exceptions import NoSuchRun, WrongState
from db.runs import run_queries
from domain.choices import RUN_ID
from domain.people.references import Named, Reference
from domain.people.rights import Denied, Rights
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.search.parser import LONGEST
from domain.spec import LONGEST_REASON, RunEdit, Tag


class BulkActions:
    """The actions of this server since its start: one is carried out at a time, each change a transaction."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._actions: OrderedDict[str, BulkAction] = OrderedDict()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "bulk-actions")

    def begin(self, request: BulkRequest, runs: Sequence[str]) -> BulkAction:
        """Carry an action out in the background, after those begun before. Raises Rejection."""
        action = BulkAction(request, list(dict.fromkeys(runs)))
        with self._lock:
            if sum(other.is_own and not other.has_ended for other in self._actions.values()) >= MOST_WAITING:
                raise Rejection(409, f"{MOST_WAITING} of your actions are waiting; cancel one, or try again later.")
            self._actions[action.id] = action
            self._forget_oldest()
            self._thread.submit(self._carry_out, action)
        return action

    def find(self, action_id: str) -> BulkAction:
        """An action of the actor, by its id. Raises Rejection."""
        with self._lock:
            action = self._actions.get(action_id)
        if action is None or not action.is_own:
            raise Rejection(404, "The server restarted meanwhile; runs that it had not reached are unchanged.")
        return action

    def cancel(self, action_id: str) -> BulkAction:
        """Reach no further run. Raises Rejection."""
        action = self.find(action_id)
        action.is_cancelled = action.is_cancelled or not action.has_ended
        return action

    def running(self) -> str | None:
        """The id of the actor's action that is carried out now."""
        with self._lock:
            own = (action for action in self._actions.values() if action.is_own)
            return next((action.id for action in own if not action.has_ended), None)

    def close(self) -> None:
        """Cancel everything; returns after the change in progress."""
        with self._lock:
            for action in self._actions.values():
                action.is_cancelled = True
        self._thread.shutdown(cancel_futures=True)

    def _forget_oldest(self) -> None:
        ended = [action.id for action in self._actions.values() if action.has_ended]
        for action_id in ended[: max(0, len(self._actions) - MOST_REMEMBERED)]:
            del self._actions[action_id]

    def _carry_out(self, action: BulkAction) -> None:
        try:
            for run_id in action.runs:
                if action.is_cancelled:
                    break
                with acting.acting(self._rights_now(action)), acting.requested_from(action.address):
                    self._change(action, run_id)
        finally:
            is_whole = len(action.changed) + len(action.refused) == len(action.runs)
            action.is_cancelled = action.is_cancelled and not is_whole
            action.has_ended = True
            log.info(
                "%s: %d of %d runs, %d refused",
                action.request.action, len(action.changed), len(action.runs), len(action.refused),
            )  # fmt: skip

    def _rights_now(self, action: BulkAction) -> Rights:
        """The present rights of the person who began it, who may have lost some since."""
        return self._service.identities.fresh(action.rights) if action.rights.by else action.rights

    def _change(self, action: BulkAction, run_id: str) -> None:
        name = run_id
        try:
            name = self._name_of(action, run_id)
            action.freed_bytes += self._act(action, run_id)
            action.changed.append(run_id)
        except (NoSuchRun, WrongState, InvalidRequest, Denied) as refusal:
            action.refused.append(RefusedRun(run_id, name, str(refusal)))
        except Exception as error:  # one run's trouble holds up no other
            action.refused.append(RefusedRun(run_id, name, self._trouble(error, run_id)))

    def _name_of(self, action: BulkAction, run_id: str) -> str:
        """The run's name for a refusal. Raises NoSuchRun."""
        if action.request.action == "restore":
            return run_id  # a deleted run has no name that people may read
        self._service.references.check_run(Action.SEE, run_id)
        return run_queries.name_and_state(self._service.store, run_id)[0]

    def _act(self, action: BulkAction, run_id: str) -> int:
        """Change one run; returns the bytes that become free."""
        request = action.request
        if (change := request.edit()) is not None:
            self._service.edit(run_id, change)
        elif request.action == "stop":
            self._service.stop(run_id, reason=request.reason)
        elif request.action == "restore":
            self._service.restore(run_id)
        else:
            return self._delete(action, run_id)
        return 0

    def _delete(self, action: BulkAction, run_id: str) -> int:
        deleted = self._service.delete(run_id, action.request.now)
        action.kept_until = deleted.kept_until
        return deleted.freed_bytes

    def _trouble(self, error: Exception, run_id: str) -> str:
        if trouble := self._service.store.trouble_of(error):
            return trouble
        log.error("run %s could not be changed", run_id, exc_info=error)
        return "The store is busy or cannot be reached, or a file cannot be removed; the server's log has the details."


log = logging.getLogger("rankzero")
MOST_NAMED = 1000
"""Runs that a request can name; a search may find more."""
MOST_FOUND = 10_000
MOST_WAITING = 20
MOST_REMEMBERED = 100
Kind = Literal["stop", "delete", "restore", "archive", "unarchive", "tag", "untag"]
RunId = Annotated[
    str, StringConstraints(pattern=f"^{RUN_ID.pattern}$", max_length=100), Reference(Named.RUN, Action.ACT)
]


class BulkRequest(BaseModel):
    """An action on many runs, which are named one by one or found by a search."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Kind
    runs: Annotated[list[RunId], Field(min_length=1, max_length=MOST_NAMED)] | None = None
    filter: Annotated[str, Field(min_length=1, max_length=LONGEST)] | None = None
    tag: Tag | None = None
    now: bool = False
    """Delete for good; this cannot be undone."""
    reason: Annotated[str, Field(max_length=LONGEST_REASON)] | None = None
    """Why runs are stopped; shown to their owners."""

    @model_validator(mode="after")
    def _check_fields(self) -> BulkRequest:
        if (self.runs is None) == (self.filter is None):
            raise ValueError("Name the runs, or give a filter that finds them.")
        if (self.tag is not None) != (self.action in ("tag", "untag")):
            raise ValueError("Only the actions tag and untag take a tag.")
        if self.now and self.action != "delete":
            raise ValueError("Only the action delete takes now.")
        if self.reason and self.action != "stop":
            raise ValueError("Only the action stop takes a reason.")
        if self.action == "restore" and self.runs is None:
            raise ValueError("Name the runs to restore: no filter finds deleted ones.")
        return self

    def edit(self) -> RunEdit | None:
        """The change of a run's description; None for an action that ends or deletes it."""
        tags = [self.tag] if self.tag else []
        return {
            "archive": RunEdit(archived=True),
            "unarchive": RunEdit(archived=False),
            "tag": RunEdit(add_tags=tags),
            "untag": RunEdit(remove_tags=tags),
        }.get(self.action)


class RefusedRun(NamedTuple):
    """A run that was not changed, and why."""

    run: str
    name: str
    message: str


@dataclass
class BulkAction:
    """One request as far as it has been carried out."""

    request: BulkRequest
    runs: Sequence[str]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    changed: list[str] = field(default_factory=list)
    refused: list[RefusedRun] = field(default_factory=list)
    freed_bytes: int = 0
    """What deleted runs hold in checkpoints, logs and event files."""
    kept_until: float | None = None
    """Until when the latest of the deleted runs can be restored; None where all are gone for good."""
    rights: Rights = field(default_factory=acting.rights)
    """The rights of the person who began it."""
    address: str | None = field(default_factory=acting.address)
    """From where it was begun, for the audit log."""
    is_cancelled: bool = False
    has_ended: bool = False

    @property
    def is_own(self) -> bool:
        """Whether the person who asks began it; the program may see all."""
        by = acting.rights().by
        return by is None or by == self.rights.by

    def document(self) -> Mapping[str, Any]:
        """The action as the API shows it; it lists the changed runs at its end."""
        return {
            "id": self.id,
            "action": self.request.action,
            "tag": self.request.tag,
            "state": ("cancelled" if self.is_cancelled else "done") if self.has_ended else "running",
            "total": len(self.runs),
            "done": len(self.changed),
            "changed": list(self.changed) if self.has_ended else [],
            "refused": [refusal._asdict() for refusal in self.refused],
            "freed_bytes": self.freed_bytes,
            "kept_until": self.kept_until,
            "can_undo": self.kept_until is not None,
        }
