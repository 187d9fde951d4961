"""Why an attempt ended on one node, in one sentence that people understand. Pure: facts in, verdict out."""

from __future__ import annotations

from collections.abc import Sequence

from domain.messages import RankError, Reason
from worker.diagnosis.causes import collectives, exits
from worker.diagnosis.causes.lookup import Explanation, explain
from worker.diagnosis.end_facts import EndFacts, Verdict
from worker.diagnosis.launch_failures import explain_launch
from worker.diagnosis.rank_ends import ROOT_CAUSE, Blame, RankEnd, first_failing, rank_ends
from worker.diagnosis.tracebacks.exceptions import find_failure, shorten, tail

__all__ = ["EndFacts", "Verdict", "explain_end"]
MESSAGE_LIMIT = 480


def explain_end(facts: EndFacts) -> Verdict:
    """The state an attempt ended in on this node and, when it failed, the first failing rank's words."""
    if facts.exit_code == 0 and not (facts.stop_requested and facts.launcher == "python"):
        return Verdict("succeeded")
    ends = rank_ends(facts)
    if facts.stop_requested and not _failed_before_the_stop(facts, ends):
        return Verdict("stopped", message=_stopped(facts))
    first = first_failing(ends)
    if facts.launch_error is not None or first is None or _says_nothing(first, facts):
        return explain_launch(facts)
    return _rank_failed(first, ends, facts)


def _failed_before_the_stop(facts: EndFacts, ends: Sequence[RankEnd]) -> bool:
    """torchrun had already found a failed rank, so the wish to stop came too late."""
    if facts.launcher == "python" or ROOT_CAUSE not in facts.launcher_err or facts.killed_by_us:
        return False
    return "SignalException" not in facts.launcher_err and any(end.blame is Blame.OWN for end in ends)


def _stopped(facts: EndFacts) -> str:
    if facts.killed_by_us:
        return f"Stopped; on {facts.node} it did not end in the time it was given, so it was killed."
    return "Stopped."


def _says_nothing(end: RankEnd, facts: EndFacts) -> bool:
    """Nobody saw how it ended, and it wrote nothing."""
    return end.failure is None and end.exit_code is None and not facts.rank_errs.get(end.rank)


def _rank_failed(end: RankEnd, ends: Sequence[RankEnd], facts: EndFacts) -> Verdict:
    found = _what_happened(end, ends, facts)
    raised = end.raised
    error = RankError(
        rank=end.rank,
        node_rank=facts.node_rank,
        exit_code=end.exit_code,
        signal=end.signal,
        exception=raised.exception if raised else None,
        file=raised.file if raised else None,
        line=raised.line if raised else None,
        traceback=tail(end.text),
        at=end.at,
        is_consequence=end.blame is not Blame.OWN,
    )
    message = shorten(f"rank {end.rank} on {facts.node}{found.says}", MESSAGE_LIMIT)
    return Verdict("failed", found.reason, message, error, found.next_step)


def _what_happened(end: RankEnd, ends: Sequence[RankEnd], facts: EndFacts) -> Explanation:
    if end.blame is Blame.WAITED:
        return _timed_out(end, ends, facts)
    if end.blame is Blame.LOST_PEER:
        return _lost_peer(end)
    if end.raised is not None:
        return _raised(end, facts)
    if end.signal is not None:
        return _signalled(end, facts)
    return exits.by_missing_script(end.text) or exits.by_exit_code(end.exit_code, end.text)


def _raised(end: RankEnd, facts: EndFacts) -> Explanation:
    """A code other than 1 was chosen by the script, after an exception that it had caught."""
    assert end.raised is not None
    found = explain(end.raised, facts.node, facts.workplace)
    chosen = end.exit_code is not None and end.exit_code > 1
    before = f": exit code {end.exit_code} after " if chosen else ": "
    return Explanation(found.reason, f"{before}{found.says}", found.next_step)


def _signalled(end: RankEnd, facts: EndFacts) -> Explanation:
    """C++ says in words what it dies of; else the signal speaks."""
    name = end.signal or ""
    if name == "SIGABRT" and (failure := find_failure(exits.as_traceback(end.text))) is not None:
        found = explain(failure, facts.node, facts.workplace)
        if found.next_step:
            return Explanation(found.reason, f": {found.says}", found.next_step)
    return exits.by_signal(name, end.text, facts.node, facts.out_of_memory_kills, facts.memory_limit_bytes)


def _timed_out(end: RankEnd, ends: Sequence[RankEnd], facts: EndFacts) -> Explanation:
    waited = {each.rank: each.timeout for each in ends if each.timeout is not None}
    timeout = waited[end.rank]
    texts = dict(facts.rank_errs) or {each.rank: each.text for each in ends}
    late = collectives.who_is_late(waited, texts, facts.rank_errs)
    place = end.raised.place if end.raised else ""
    is_all_here = facts.world_size is None or facts.world_size <= len(facts.rank_errs)
    says = collectives.describe(timeout, late, place, is_all_here)
    return Explanation(Reason.TIMED_OUT, f": {says}", collectives.next_step(timeout, late))


def _lost_peer(end: RankEnd) -> Explanation:
    next_step = "The rank that ended first says why: look at the logs of the other ranks and nodes."
    if end.raised is None:
        how = f" ({end.signal})" if end.signal else ""
        return Explanation(Reason.KILLED, f" lost the other ranks and was aborted{how}", next_step)
    says = f" lost its connection to the other ranks: {end.raised.exception}{end.raised.place}"
    return Explanation(Reason.SCRIPT_ERROR, says, next_step)
