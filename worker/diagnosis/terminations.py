"""Explain ranks that saved and ended with 0 because somebody else sent them SIGTERM. Pure."""

from __future__ import annotations

import re

from worker.diagnosis.end_facts import EndFacts, Verdict

_PROGRESS = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?|it|batch)s?\W{0,3}(?P<done>\d+)\s*(?:/|of)\s*(?P<all>\d+)",
    re.IGNORECASE,
)
LATE_S = 60.0
"""A script that goes on for longer after the signal did not end because of it."""
NEXT = (
    "Find out what sent it on node {node} (a scheduler, a time limit, a person), and resume the run: it goes on from "
    "its last checkpoint."
)


def explain_termination(facts: EndFacts) -> Verdict | None:
    """Return that the run was stopped from outside; None if it came to its own end all the same."""
    if facts.terminated_at is None:
        return None
    done, total = _progress(facts)
    is_late = facts.ended_at is not None and facts.ended_at - facts.terminated_at > LATE_S
    if (total and done + 1 >= total) or (not total and is_late):
        return None
    where = f" at step {done} of {total}" if total else ""
    message = (
        f"The processes on {facts.node} got SIGTERM from outside (nobody stopped the run here), and ended with "
        f"exit code 0{where}."
    )
    return Verdict("stopped", message=message, next_step=NEXT.replace("{node}", facts.node))


def _progress(facts: EndFacts) -> tuple[int, int]:
    """Return (step, announced steps) of the last line that names both; (0, 0) if none does."""
    for _, text in sorted(facts.rank_outs.items()):
        if matches := _PROGRESS.findall(text):
            return int(matches[-1][0]), int(matches[-1][1])
    return 0, 0
