"""What is known of an attempt's end on one node, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from domain.messages import RankError, Reason
from domain.spec import Launcher
from worker.diagnosis.causes.files import Workplace


@dataclass(frozen=True)
class EndFacts:
    """What the supervisor and the logs of one node know when no process of the attempt is left."""

    exit_code: int | None = None
    """The launcher's; None when it could not be started, or nobody saw its end."""
    signal: str | None = None
    """The signal that ended the launcher, e.g. SIGKILL."""
    launcher: Launcher = "torchrun"
    node: str = "this node"
    node_rank: int = 0
    world_size: int | None = None
    """Ranks over all nodes."""
    stop_requested: bool = False
    """A person asked for the end before it came."""
    killed_by_us: bool = False
    """The grace period was over, so the supervisor killed what was left."""
    launch_error: str | None = None
    """What the system said when the launcher could not be started."""
    launcher_err: str = ""
    """The end of what the launcher itself wrote to stderr."""
    rank_errs: Mapping[int, str] = field(default_factory=dict)
    """Global rank -> the end of its stderr."""
    rank_outs: Mapping[int, str] = field(default_factory=dict)
    """Global rank -> the end of its stdout, where some scripts print their tracebacks."""
    error_file: str | None = None
    """The text of TORCHELASTIC_ERROR_FILE, which scripts with `@record` leave."""
    out_of_memory_kills: int = 0
    """How often the kernel killed a process of the attempt for its memory, where it tells."""
    memory_limit_bytes: int | None = None
    """Of the container or control group it ran in."""
    workplace: Workplace = field(default_factory=Workplace)


@dataclass(frozen=True)
class Verdict:
    """How the attempt ended on this node."""

    state: Literal["succeeded", "failed", "stopped"]
    reason: Reason | None = None
    message: str | None = None
    error: RankError | None = None
    next_step: str | None = None
