"""Pure: parts of the probe that broke, as a finding; what they saw is missing, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from domain.messages import Finding

KIND = "probe part failed"
MOST_NAMED = 8


def fault_findings(faults: Sequence[str]) -> list[Finding]:
    """One finding for the faults of all ranks, each in a sentence; none where there is none."""
    if not faults:
        return []
    told = list(dict.fromkeys(faults))[:MOST_NAMED]
    more = len(set(faults)) - len(told)
    return [
        Finding(
            kind=KIND,
            evidence="; ".join(told)[:7800]
            + (f"; and {more} more" if more else "")
            + "; the training is not touched.",
            meaning="What this part sees of the rank (steps, waiting, memory or silent mistakes) is missing from "
            "now on, so a hang or a mistake may go unnoticed. Logged metrics, logs and checkpoints do not need it.",
            mend="Often a version of torch that the probe does not know yet, or a script that replaces a part of "
            "torch. Report the sentence above with the versions on the run's Code tab; probe: false in the spec "
            "(--no-probe) leaves the probe out.",
        )
    ]
