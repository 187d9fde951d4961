"""Explain in one sentence why an attempt ended on one node. Pure: facts in, verdict out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from domain.device_memory import DeviceMemory
from domain.messages import RankError, Reason
from worker.diagnosis.causes import collectives, exits, interfaces
from worker.diagnosis.causes.exits import by_missing_script
from worker.diagnosis.causes.lookup import Explanation, explain, is_gpu_memory
from worker.diagnosis.causes.machine import KILLED_HINT
from worker.diagnosis.causes.pytorch import BROKEN_DEVICE
from worker.diagnosis.causes.reruns import Rerun, is_lost_child
from worker.diagnosis.causes.tracebacks import find_failure, last_line, shorten, tail
from worker.diagnosis.rank_ends import (
    ROOT_CAUSE,
    Blame,
    EndFacts,
    RankEnd,
    Verdict,
    explain_early_leaver,
    first_failing,
    rank_ends,
)

__all__ = ["EndFacts", "Verdict", "explain_end"]
MESSAGE_LIMIT = 480


def explain_end(facts: EndFacts) -> Verdict:
    """Return the state in which the attempt ended on this node and, if it failed, the first failing rank's error."""
    if facts.exit_code == 0 and not (facts.stop_requested and facts.launcher == "python"):
        return explain_termination(facts) or Verdict("succeeded")
    ends = rank_ends(facts)
    if facts.stop_requested and not _failed_before_stop(facts, ends):
        return Verdict("stopped", message=_stopped(facts))
    first = first_failing(ends)
    if facts.launch_error is not None or first is None or _left_no_trace(first, facts):
        return explain_launch_failure(facts)
    if facts.left_early and not _follows_rerun(first, facts) and first.blame in (Blame.LOST_PEER, Blame.WAITED):
        return explain_early_leaver(first, facts)
    return _rank_failed(first, ends, facts)


def _failed_before_stop(facts: EndFacts, ends: Sequence[RankEnd]) -> bool:
    """Whether torchrun had reported a failed rank before the stop request took effect."""
    if facts.launcher == "python" or ROOT_CAUSE not in facts.launcher_err or facts.killed_by_us:
        return False
    return "SignalException" not in facts.launcher_err and any(end.blame is Blame.OWN for end in ends)


def _stopped(facts: EndFacts) -> str:
    if facts.killed_by_us:
        return f"Stopped; on {facts.node} it did not end within the grace period, so it was killed."
    return "Stopped."


def _left_no_trace(end: RankEnd, facts: EndFacts) -> bool:
    """Whether neither an exit code nor any output of the rank is available."""
    return end.failure is None and end.exit_code is None and not facts.rank_errs.get(end.rank)


def _rank_failed(end: RankEnd, ends: Sequence[RankEnd], facts: EndFacts) -> Verdict:
    explanation = _explain_rank(end, ends, facts)
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
        is_consequence=end.blame is not Blame.OWN and not _follows_rerun(end, facts),
        fault="device" if _is_broken_device(end) else None,
        memory=_device_memory(end, facts),
    )
    message = shorten(f"rank {end.rank} on {facts.node}{explanation.says}", MESSAGE_LIMIT)
    return Verdict("failed", explanation.reason, message, error, explanation.next_step)


def _is_broken_device(end: RankEnd) -> bool:
    """Whether the rank's own exception says that the device is at fault."""
    failure = end.raised or end.thrown
    return end.blame is Blame.OWN and failure is not None and bool(re.search(BROKEN_DEVICE, failure.all_text))


def _device_memory(end: RankEnd, facts: EndFacts) -> DeviceMemory | None:
    """The rank's device, if its exception is the failed allocation."""
    is_its_end = end.blame is Blame.OWN and end.raised is not None and is_gpu_memory(end.raised.all_text)
    return facts.device_memory.get(end.rank) if is_its_end else None


def _explain_rank(end: RankEnd, ends: Sequence[RankEnd], facts: EndFacts) -> Explanation:
    if facts.rerun is not None and _follows_rerun(end, facts):
        return _rerun(facts.rerun, end)
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
    """Explain an exception; an exit code above 1 was chosen by the script after it caught the exception."""
    assert end.raised is not None
    memory = facts.device_memory.get(end.rank)
    if missing := interfaces.missing_interface(end.raised.all_text, facts.node, facts.interfaces):
        return Explanation(Reason.SCRIPT_ERROR, f": {missing[0]}{end.raised.place}", missing[1])
    explanation = explain(end.raised, facts.node, facts.workplace, memory)
    is_chosen = end.exit_code is not None and end.exit_code > 1
    prefix = f": exit code {end.exit_code} after " if is_chosen else ": "
    return Explanation(explanation.reason, f"{prefix}{explanation.says}", explanation.next_step)


def _follows_rerun(end: RankEnd, facts: EndFacts) -> bool:
    """Whether a rank may have ended because a process that it started ran the script again."""
    if facts.rerun is None or end.signal not in (None, "SIGABRT", "SIGTERM"):
        return False
    return end.blame is not Blame.OWN or end.raised is None or is_lost_child(end.raised.all_text)


def _rerun(rerun: Rerun, end: RankEnd) -> Explanation:
    """Explain the script that runs again where it starts processes; the error by which the rank ended follows."""
    follows = f"; then {shorten(end.raised.exception, 120)}{end.raised.place}" if end.raised else ""
    return Explanation(Reason.SCRIPT_ERROR, f": {rerun.sentence}{follows}", rerun.fix)


def _signalled(end: RankEnd, facts: EndFacts) -> Explanation:
    """Explain a signal, by the uncaught C++ exception in the output if there is one."""
    name, kills, limit_bytes = end.signal or "", facts.out_of_memory_kills, facts.memory_limit_bytes
    by_signal = exits.by_signal(name, end.text, facts.node, kills, limit_bytes, facts.host_memory)
    if end.thrown is None:
        return by_signal
    explanation = explain(end.thrown, facts.node, facts.workplace)
    next_step = explanation.next_step or by_signal.next_step
    return Explanation(explanation.reason, f": {explanation.says}", next_step)


def _timed_out(end: RankEnd, ends: Sequence[RankEnd], facts: EndFacts) -> Explanation:
    timeouts = {rank_end.rank: rank_end.timeout for rank_end in ends if rank_end.timeout is not None}
    timeout = timeouts[end.rank]
    texts = dict(facts.rank_errs) or {rank_end.rank: rank_end.text for rank_end in ends}
    late = collectives.late_ranks(timeouts, texts, facts.rank_errs)
    place = end.raised.place if end.raised else ""
    is_all_here = facts.world_size is None or facts.world_size <= len(facts.rank_errs)
    says = collectives.describe(timeout, late, place, is_all_here)
    return Explanation(Reason.TIMED_OUT, f": {says}", collectives.next_step(timeout, late))


def _lost_peer(end: RankEnd) -> Explanation:
    next_step = "The rank that ended first shows the cause: check the logs of the other ranks and nodes."
    if end.raised is None:
        how = f" ({end.signal})" if end.signal else ""
        return Explanation(Reason.KILLED, f" lost the other ranks and was aborted{how}", next_step)
    says = f" lost its connection to the other ranks: {end.raised.exception}{end.raised.place}"
    return Explanation(Reason.SCRIPT_ERROR, says, next_step)


# Explain failures of the launcher itself: broken, killed or lost, without a rank to blame. Pure.

_AGAIN = "Resume it, or launch it again."


def explain_launch_failure(facts: EndFacts) -> Verdict:
    """Explain why the launcher did not start, or ended without a failed rank."""
    node, failure = facts.node, find_failure(facts.launcher_err)
    if facts.launch_error is not None:
        return _not_started(facts)
    if facts.signal is not None:
        memory = KILLED_HINT if facts.signal == "SIGKILL" else ""
        return _verdict(facts, Reason.KILLED, f"on {node} was killed ({facts.signal}){memory}", _AGAIN)
    if facts.exit_code is None:
        sentence = f"ended on {node} without a report: the node or its supervisor went down"
        return _verdict(facts, Reason.NODE_LOST, sentence, _AGAIN)
    for rank, text in sorted(facts.rank_errs.items()):
        if (missing := by_missing_script(text)) is not None:
            error = RankError(rank=rank, node_rank=facts.node_rank, traceback=tail(text))
            message = f"rank {rank} on {node}{missing.says}"
            return Verdict("failed", missing.reason, message, error, missing.next_step)
    error_text = failure.exception if failure else last_line(facts.launcher_err)
    if facts.rank_errs:
        sentence = f"on {node} ended with exit code {facts.exit_code}"
        return _verdict(facts, Reason.EXIT_CODE, f"{sentence}: {error_text}" if error_text else sentence, _AGAIN)
    return _could_not_start(facts, error_text)


def _not_started(facts: EndFacts) -> Verdict:
    error = facts.launch_error or ""
    missing = "No such file" in error
    reason = Reason.SCRIPT_MISSING if missing else Reason.LAUNCH_FAILED
    next_step = "Choose another Python with --python." if missing else None
    if "Argument list too long" in error:
        next_step = "Shorten the arguments or the environment: put long lists into a file."
        sentence = "its arguments and environment are larger than Linux passes to a program (E2BIG)"
        return _verdict(facts, reason, f"could not be started on {facts.node}: {sentence}", next_step)
    return _verdict(facts, reason, f"could not be started on {facts.node}: {shorten(error)}", next_step)


def _could_not_start(facts: EndFacts, error_text: str | None) -> Verdict:
    reason, next_step = Reason.LAUNCH_FAILED, None
    if port := re.search(r"port: (\d+).*EADDRINUSE", facts.launcher_err):
        reason = Reason.PORT_IN_USE
        error_text = f"port {port[1]} is in use by another program"
        next_step = "Start the run again: it gets another port."
    elif re.search(r"No module named '?torch\b", facts.launcher_err):
        error_text = "the Python that trains has no torch"
        next_step = "Install torch there, or choose another Python with --python."
    elif unknown := re.search(r"error: unrecognized arguments: (.+)", facts.launcher_err):
        error_text = f"its torch is too old (torchrun does not know {unknown[1]})"
        next_step = "Install torch 2.4 or newer in the Python that trains, or choose another with --python."
    elif re.search(r"error while loading shared libraries|cannot open shared object file", facts.launcher_err):
        next_step = "Install that library, or choose another Python with --python."
    sentence = f"could not start on {facts.node}: {error_text or 'it gave no reason'}"
    return _verdict(facts, reason, sentence, next_step)


def _verdict(facts: EndFacts, reason: Reason, sentence: str, next_step: str | None) -> Verdict:
    name = "the training" if facts.launcher == "python" else "torchrun"
    failure = find_failure(facts.launcher_err)
    error = RankError(
        node_rank=facts.node_rank,
        exit_code=facts.exit_code,
        signal=facts.signal,
        exception=failure.exception if failure else None,
        traceback=tail(facts.launcher_err),
    )
    return Verdict("failed", reason, f"{name} {sentence}", error, next_step)


# Explain ranks that saved and ended with 0 because somebody else sent them SIGTERM. Pure.

_PROGRESS = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?|it|batch)s?\W{0,3}(?P<done>\d+)\s*(?:/|of)\s*(?P<all>\d+)",
    re.IGNORECASE,
)
LATE_S = 60.0
"""A script that runs longer after the signal did not end because of it."""
NEXT = (
    "Find out what sent it on node {node} (a scheduler, a time limit, a person), and resume the run: it continues from "
    "its last checkpoint."
)


def explain_termination(facts: EndFacts) -> Verdict | None:
    """Return that the run was stopped from outside; None if it still came to its own end."""
    if facts.terminated_at is None:
        return None
    step, total = _progress(facts)
    is_late = facts.ended_at is not None and facts.ended_at - facts.terminated_at > LATE_S
    if (total and step + 1 >= total) or (not total and is_late):
        return None
    where = f" at step {step} of {total}" if total else ""
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
