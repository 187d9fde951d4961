"""The Flight Recorder of one rank, as the probe reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RankRecorder:
    """What the probe reported of one rank's recorder."""

    groups: Mapping[str, list[int]] = field(default_factory=dict)
    """Ranks of each process group."""
    why_not: str = ""
    """Why torch records no collectives there."""
