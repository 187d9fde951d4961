"""What `rankzero nodes add`, `upgrade` and `remove` report of their hosts, for the Nodes page; in memory only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.masking.masking import masked_text

MOST_KEPT = 5
SILENT_AFTER_S = 30.0
"""A command that has reported nothing for so long has probably been killed."""
Text = Annotated[str, Field(max_length=1000)]


class HostStep(BaseModel):
    """How far one host is."""

    model_config = ConfigDict(extra="forbid")

    host: Text
    node: Text | None = None
    state: Annotated[str, Field(max_length=20)]
    """`waiting`, `working`, `failed`, or what became of it: `joined`, `upgraded`, `removed`."""
    step: Text = ""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    message: Text = ""


class InstallationReport(BaseModel):
    """How far a command is with all its hosts."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["add", "upgrade", "remove"]
    is_over: bool = False
    hosts: Annotated[list[HostStep], Field(max_length=4096)]


@dataclass(frozen=True)
class Installation:
    """One command, as it reported last."""

    id: str
    action: str
    began_at: float
    reported_at: float
    is_over: bool
    hosts: list[HostStep]

    def is_silent(self, now: float) -> bool:
        """Whether the command has not reported its end, nor anything else for long."""
        return not self.is_over and now - self.reported_at > SILENT_AFTER_S


class Installations:
    """The last commands; safe to use from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._by_id: dict[str, Installation] = {}

    def record(self, key: str, report: InstallationReport) -> Installation:
        """Record a report; what looks like a secret in a message is masked."""
        now = self._clock()
        hosts = [host.model_copy(update={"message": masked_text(host.message)}) for host in report.hosts]
        with self._lock:
            before = self._by_id.pop(key, None)
            began_at = before.began_at if before else now
            installation = Installation(key, report.action, began_at, now, report.is_over, hosts)
            self._by_id[key] = installation
            while len(self._by_id) > MOST_KEPT:
                del self._by_id[next(iter(self._by_id))]
        return installation

    def all(self) -> list[Installation]:
        """The last commands, newest first."""
        with self._lock:
            return sorted(self._by_id.values(), key=lambda installation: installation.began_at, reverse=True)
