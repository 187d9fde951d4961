"""Explain failures of the launcher itself: broken, killed or lost, without a rank to blame. Pure."""

from __future__ import annotations

import re

from domain.messages import RankError, Reason
from worker.diagnosis.causes.exits import by_missing_script
from worker.diagnosis.causes.machine import KILLED_HINT
from worker.diagnosis.end_facts import EndFacts, Verdict
from worker.diagnosis.tracebacks.exceptions import find_failure, last_line, shorten, tail

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
