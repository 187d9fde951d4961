"""What a watched run shows of the command that somebody else started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WatchedView:
    """What somebody else started, as its first process described it."""

    command: str
    """As it was typed behind `--`; empty for a notebook or script that watches itself."""
    cwd: str
    host: str
    account: str
    """The operating system's account under which it runs."""
    scheduler: str | None
    """What started it: Slurm job 4711; None: a terminal."""
    look_only: bool
    """Whether it must not be stopped from here."""
    processes: int
    """The processes that have joined its latest attempt."""
    again: str | None = None
    """The command to type for the same again, from its latest checkpoint where it takes one; only of a single run."""

    @property
    def started(self) -> str:
        """mara (Slurm job 4711)"""
        return f"{self.account} ({self.scheduler})" if self.scheduler else self.account

    @property
    def origin(self) -> str:
        """gpu-3, started by mara (Slurm job 4711)"""
        return f"{self.host}, started by {self.started}"

    @property
    def look_only_words(self) -> str:
        """Why it cannot be stopped from here, and where it can."""
        return f"It was started with --look-only on {self.origin}: stop it there."
