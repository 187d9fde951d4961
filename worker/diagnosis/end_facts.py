"""Facts about an attempt's end on one node, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from domain.choices import Launcher
from domain.device_memory import DeviceMemory
from domain.messages import RankError, Reason
from worker.diagnosis.causes.files import Workplace
from worker.diagnosis.causes.interfaces import Interfaces


@dataclass(frozen=True)
class EndFacts:
    """Facts from the supervisor and the logs of one node after all processes of the attempt have ended."""

    exit_code: int | None = None
    """Exit code of the launcher; None if it could not be started or its end was not observed."""
    signal: str | None = None
    """The signal that ended the launcher, e.g. SIGKILL."""
    launcher: Launcher = "torchrun"
    node: str = "this node"
    node_rank: int = 0
    world_size: int | None = None
    """Ranks over all nodes."""
    stop_requested: bool = False
    """A stop was requested before the end."""
    killed_by_us: bool = False
    """The supervisor killed the remaining processes after the grace period."""
    launch_error: str | None = None
    """The system's error if the launcher could not be started."""
    launcher_err: str = ""
    """The end of the launcher's own stderr."""
    rank_errs: Mapping[int, str] = field(default_factory=dict)
    """Global rank -> the end of its stderr."""
    rank_outs: Mapping[int, str] = field(default_factory=dict)
    """Global rank -> the end of its stdout, in which some scripts print their tracebacks."""
    error_file: str | None = None
    """The text of TORCHELASTIC_ERROR_FILE, which scripts with `@record` leave."""
    out_of_memory_kills: int = 0
    """Number of the attempt's processes killed by the kernel for lack of memory, if the kernel reports it."""
    memory_limit_bytes: int | None = None
    """Memory limit of its container or control group."""
    device_memory: Mapping[int, DeviceMemory] = field(default_factory=dict)
    """Global rank -> its device when its last allocation failed."""
    host_memory: str = ""
    """The node's memory in the last sample, in words."""
    workplace: Workplace = field(default_factory=Workplace)
    interfaces: Interfaces = field(default_factory=Interfaces)
    terminated_at: float | None = None
    """When a rank was first told to end by SIGTERM and handled it; nobody asked us for a stop."""
    ended_at: float | None = None
    left_early: tuple[int, ...] = ()
    """Global ranks of this node that ended by themselves with exit code 0 while others failed."""


@dataclass(frozen=True)
class Verdict:
    """How the attempt ended on this node."""

    state: Literal["succeeded", "failed", "stopped"]
    reason: Reason | None = None
    message: str | None = None
    error: RankError | None = None
    next_step: str | None = None
