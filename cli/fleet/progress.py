"""The progress of a command on many hosts: each host's step, seconds and trouble."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.fleet.host_list import Destination, Machine
from domain.lists.node_lists import FAILED, WAITING, WORKING


@dataclass
class HostProgress:
    """How far one host is."""

    machine: Machine
    node: str | None = None
    """The node's name, once it is known."""
    node_id: str | None = None
    state: str = WAITING
    """`waiting`, `working`, `failed`, or what the command makes of a host: `joined`, `upgraded`, `removed`."""
    step: str = ""
    message: str = ""
    began_at: float | None = None
    ended_at: float | None = None
    changed: Callable[[HostProgress], None] = field(default=lambda progress: None, repr=False)

    @property
    def host(self) -> Destination:
        """The host."""
        return self.machine.host

    @property
    def seconds(self) -> float:
        """How long the host has been worked on."""
        if self.began_at is None:
            return 0.0
        return (self.ended_at or time.monotonic()) - self.began_at

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens on it."""
        return self.state not in (WAITING, WORKING)

    def at(self, step: str) -> None:
        """Begin a step."""
        self.began_at = self.began_at or time.monotonic()
        self.state, self.step = WORKING, step
        self.changed(self)

    def end(self, state: str, message: str) -> None:
        """End the work on this host."""
        self.began_at = self.began_at or time.monotonic()
        self.state, self.message, self.ended_at = state, message, time.monotonic()
        self.changed(self)

    def document(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "host": str(self.host),
            "node": self.node,
            "state": self.state,
            "seconds": round(self.seconds, 1),
            "message": self.message,
        }

    def live_document(self) -> dict[str, Any]:
        """Return it as the dashboard shows it meanwhile."""
        return self.document() | {"step": self.step}


def done_word(hosts: Sequence[HostProgress]) -> str:
    """Return how many hosts are through, in words: 3 of 8, 1 failed."""
    over, failed = sum(host.is_over for host in hosts), sum(host.state == FAILED for host in hosts)
    return f"{over} of {len(hosts)}" + (f", {failed} failed" if failed else "")
