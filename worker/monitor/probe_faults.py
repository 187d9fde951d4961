"""Report failed parts of the probe as a finding. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from domain.messages import Finding

KIND = "probe part failed"
MOST_NAMED = 8


def fault_findings(faults: Sequence[str]) -> list[Finding]:
    """Return one finding for the faults of all ranks (one sentence each), or none."""
    if not faults:
        return []
    sentences = list(dict.fromkeys(faults))[:MOST_NAMED]
    unnamed = len(set(faults)) - len(sentences)
    return [
        Finding(
            kind=KIND,
            evidence="; ".join(sentences)[:7800]
            + (f"; and {unnamed} more" if unnamed else "")
            + "; the training is not affected.",
            meaning="What this part measures on the rank (steps, waiting, memory or silent mistakes) is missing from "
            "now on, so a hang or a mistake may go unnoticed. Logged metrics, logs and checkpoints are not affected.",
            fix="The usual cause is a version of torch that the probe does not know yet, or a script that replaces a "
            "part of torch. Report the sentence above with the versions on the run's Code tab; probe: false in the "
            "spec (--no-probe) switches the probe off.",
        )
    ]
