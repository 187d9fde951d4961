"""Explain ranks that ended with exit code 0 while the others went on, and so lost their connection. Pure."""

from __future__ import annotations

import re

from domain.collectives.alignment import rank_list
from domain.messages import RankError, Reason
from domain.text.formats import agree
from worker.diagnosis.end_facts import EndFacts, Verdict
from worker.diagnosis.rank_ends import RankEnd
from worker.diagnosis.tracebacks.exceptions import last_line, shorten, tail

_STEP = re.compile(r"\b(?:global[_ ])?(?:step|iter(?:ation)?)\b\W{0,3}(?P<step>\d+)", re.IGNORECASE)
_CLOSED = re.compile(r"Sending process (\d+) closing signal")
_NEXT = (
    "Let all ranks stop together: decide on one rank, tell the others (broadcast, or an all_reduce of a flag) and "
    "leave the loop after the same step; unequal numbers of batches need drop_last=True or model.join()."
)


def ranks_left_early(pids: dict[int, int], launcher_err: str, failed: set[int]) -> tuple[int, ...]:
    """Return the ranks of `pids` that neither failed nor were alive when torchrun ended the others."""
    closed = {int(pid) for pid in _CLOSED.findall(launcher_err)}
    return tuple(sorted(rank for rank, pid in pids.items() if rank not in failed and pid not in closed))


def explain_early_leaver(consequence: RankEnd, facts: EndFacts) -> Verdict:
    """Name the ranks that left; `consequence` is how another one ended, which only lost them."""
    ranks = facts.left_early
    text = facts.rank_outs.get(ranks[0], "")
    steps = _STEP.findall(text)
    after = f" after step {steps[-1]}" if steps else ""
    last = last_line(text, 120)
    their = agree(len(ranks), "its", "their")
    sentence = (
        f"{rank_list(ranks)} on {facts.node} ended by {agree(len(ranks), 'itself', 'themselves')} with exit code 0"
        f"{after} while rank {consequence.rank} went on, whose connection error is a consequence"
        + (f"; {their} last line: {last}" if last else "")
    )
    error = RankError(
        rank=ranks[0],
        node_rank=facts.node_rank,
        exit_code=0,
        traceback=tail(consequence.text),
        at=consequence.at,
    )
    return Verdict("failed", Reason.SCRIPT_ERROR, shorten(sentence, 480), error, _NEXT)
