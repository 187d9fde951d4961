"""Why an attempt ended on one node, in one sentence that people understand. Pure: facts in, verdict out."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from db.spec import Launcher
from db.states import RankError, Reason
from worker.tracebacks import Failure, find_failure, last_words, shorten, tail


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
    error_file: str | None = None
    """The text of TORCHELASTIC_ERROR_FILE, which scripts with `@record` leave."""
    out_of_memory_kills: int = 0
    """How often the kernel killed a process of the attempt for its memory, where it tells."""


@dataclass(frozen=True)
class Verdict:
    """How the attempt ended on this node."""

    state: Literal["succeeded", "failed", "stopped"]
    reason: Reason | None = None
    message: str | None = None
    error: RankError | None = None


def explain_end(facts: EndFacts) -> Verdict:
    """The state an attempt ended in on this node and, when it failed, the first failing rank's words."""
    if facts.exit_code == 0 and not (facts.stop_requested and facts.launcher == "python"):
        return Verdict("succeeded")
    exits = _exits(facts)
    if facts.stop_requested and not _failed_before_the_stop(facts, exits):
        return Verdict("stopped", message=_stopped(facts))
    if facts.launch_error is not None:
        return _not_started(facts)
    first = _first_failing(exits, facts)
    if first is None or (first.failure is None and not first.exited and not facts.rank_errs.get(first.rank)):
        return _launcher_failed(facts)
    return _rank_failed(first, facts)


@dataclass(frozen=True)
class _RankEnd:
    """How one rank ended, as far as torchrun and its stderr tell."""

    rank: int
    exit_code: int | None = None
    at: float | None = None
    failure: Failure | None = None
    stderr: str = ""

    @property
    def exited(self) -> bool:
        """Somebody saw its exit code."""
        return self.exit_code is not None

    @property
    def signal(self) -> str | None:
        """The signal that ended it."""
        if self.exit_code is None or self.exit_code >= 0:
            return None
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"

    @property
    def is_consequence(self) -> bool:
        """It only noticed that another rank was gone, or torchrun ended it for that."""
        if self.failure is not None:
            return bool(_PEER_GONE.search(self.failure.exception))
        return self.signal == "SIGTERM" or bool(_PEER_GONE.search(self.stderr) and self.signal != "SIGKILL")


_PEER_GONE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Connection refused"
    r"|remote process exited|ncclRemoteError|ncclSystemError|NCCL communicator was aborted|was aborted"
    r"|Watchdog caught collective operation timeout|Timed out waiting \d+ms|failed to recv, got 0 bytes"
    r"|recvValue failed|sendBytes failed|Socket Timeout|Socket closed|typically caused by a remote worker"
    r"|Broken stale connection|Application timeout caused pair closure",
    re.IGNORECASE,
)
"""What gloo, NCCL and the store say in the ranks that did not fail themselves."""


# -- which rank was first ----------------------------------------------------------------------


def _exits(facts: EndFacts) -> list[_RankEnd]:
    """Every rank that is known to have failed, torchrun's root cause first."""
    if facts.launcher == "python":
        text = facts.rank_errs.get(0, facts.launcher_err)
        return [_RankEnd(0, _single_exit_code(facts), None, find_failure(text), text)]
    seen: dict[int, _RankEnd] = {}
    for rank, exit_code, at in _torchrun_failures(facts.launcher_err):
        text = facts.rank_errs.get(rank, "")
        seen.setdefault(rank, _RankEnd(rank, exit_code, at, find_failure(text), text))
    if seen and (record := _recorded(facts.error_file)) is not None:
        root = next(iter(seen.values()))
        failure, stderr = root.failure or find_failure(record[0]), root.stderr or record[0]
        seen[root.rank] = _RankEnd(root.rank, root.exit_code, record[1] or root.at, failure, stderr)
    for rank, text in sorted(facts.rank_errs.items()):
        if rank not in seen and (failure := find_failure(text)) is not None:
            seen[rank] = _RankEnd(rank, None, None, failure, text)
    return list(seen.values())


def _single_exit_code(facts: EndFacts) -> int | None:
    if facts.signal is not None and facts.signal in signal.Signals.__members__:
        return -signal.Signals[facts.signal].value
    return facts.exit_code


def _first_failing(exits: list[_RankEnd], facts: EndFacts) -> _RankEnd | None:
    """torchrun's root cause, unless it is a consequence and another rank has a cause of its own."""
    causes = [end for end in exits if not end.is_consequence]
    if causes or exits:
        return (causes or exits)[0]
    silent = [rank for rank in sorted(facts.rank_errs) if _script_missing(facts.rank_errs[rank])]
    return _RankEnd(silent[0], stderr=facts.rank_errs[silent[0]]) if silent else None


_BLOCK = re.compile(
    r"^\[\d+\]:\s*\n\s+time\s*: (?P<time>\S+)\n\s+host\s*: .*\n\s+rank\s*: (?P<rank>\d+) .*\n"
    r"\s+exitcode\s*: (?P<exit_code>-?\d+)",
    re.MULTILINE,
)
_ROOT_CAUSE = "Root Cause (first observed failure):"


def _torchrun_failures(launcher_err: str) -> list[tuple[int, int, float | None]]:
    """(rank, exit code, time) of torchrun's last summary, the root cause first."""
    others, found, root = launcher_err.rpartition(_ROOT_CAUSE)
    if not found:
        return []
    others = others.rpartition("\nFailures:\n")[2]
    return [
        (int(block["rank"]), int(block["exit_code"]), _local_time(block["time"]))
        for block in [*_BLOCK.finditer(root), *_BLOCK.finditer(others)]
    ]


def _local_time(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d_%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def _recorded(error_file: str | None) -> tuple[str, float | None] | None:
    """(traceback, time) from what `@record` wrote for the root cause."""
    try:
        message: Any = json.loads(error_file or "")["message"]
        if isinstance(message, str):
            return message, None
        extra = message.get("extraInfo") or {}
        traceback = str(extra.get("py_callstack") or message.get("message", ""))
        return traceback, float(extra["timestamp"]) if "timestamp" in extra else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


# -- sentences ---------------------------------------------------------------------------------


def _failed_before_the_stop(facts: EndFacts, exits: list[_RankEnd]) -> bool:
    """torchrun had already found a failed rank, so the wish to stop came too late."""
    if facts.launcher == "python" or _ROOT_CAUSE not in facts.launcher_err or facts.killed_by_us:
        return False
    return "SignalException" not in facts.launcher_err and any(not end.is_consequence for end in exits)


def _stopped(facts: EndFacts) -> str:
    if facts.killed_by_us:
        return f"Stopped; on {facts.node} it did not end in the time it was given, so it was killed."
    return "Stopped."


def _not_started(facts: EndFacts) -> Verdict:
    error = facts.launch_error or ""
    reason = Reason.SCRIPT_MISSING if "No such file" in error else Reason.LAUNCH_FAILED
    return _launch_verdict(facts, reason, f"could not be started on {facts.node}: {shorten(error)}")


def _launcher_failed(facts: EndFacts) -> Verdict:
    """No rank is to blame: the launcher itself broke, was killed, or nobody saw its end."""
    node, failure = facts.node, find_failure(facts.launcher_err)
    if facts.signal is not None:
        memory = _MEMORY_HINT if facts.signal == "SIGKILL" else ""
        return _launch_verdict(facts, Reason.KILLED, f"on {node} was killed ({facts.signal}){memory}")
    if facts.exit_code is None:
        sentence = f"ended on {node} unseen: the node, or its supervisor, went down"
        return _launch_verdict(facts, Reason.NODE_LOST, sentence)
    words = failure.exception if failure else last_words(facts.launcher_err)
    if facts.rank_errs:
        sentence = f"on {node} ended with exit code {facts.exit_code}"
        return _launch_verdict(facts, Reason.EXIT_CODE, f"{sentence}: {words}" if words else sentence)
    if port := re.search(r"port: (\d+).*EADDRINUSE", facts.launcher_err):
        words = f"port {port[1]} is in use by another program. Start the run again, it gets another port"
    elif re.search(r"No module named '?torch\b", facts.launcher_err):
        words = "the Python that trains has no torch. Install it there, or choose another Python"
    sentence = f"could not start on {node}: {words or 'it gave no reason'}"
    return _launch_verdict(facts, Reason.LAUNCH_FAILED, sentence)


def _launch_verdict(facts: EndFacts, reason: Reason, sentence: str) -> Verdict:
    name = "the training" if facts.launcher == "python" else "torchrun"
    failure = find_failure(facts.launcher_err)
    error = RankError(
        node_rank=facts.node_rank,
        exit_code=facts.exit_code,
        signal=facts.signal,
        exception=failure.exception if failure else None,
        traceback=tail(facts.launcher_err),
    )
    return Verdict("failed", reason, f"{name} {sentence}", error)


def _rank_failed(end: _RankEnd, facts: EndFacts) -> Verdict:
    reason, what = _what_happened(end, facts)
    failure = end.failure
    error = RankError(
        rank=end.rank,
        node_rank=facts.node_rank,
        exit_code=end.exit_code,
        signal=end.signal,
        exception=failure.exception if failure else None,
        file=failure.file if failure else None,
        line=failure.line if failure else None,
        traceback=tail(end.stderr),
        at=end.at,
    )
    return Verdict("failed", reason, f"rank {end.rank} on {facts.node}{what}", error)


def _what_happened(end: _RankEnd, facts: EndFacts) -> tuple[Reason, str]:
    """A signal speaks before an older traceback; but an uncaught exception can end in SIGABRT, and in
    the SIGTERM that torchrun sends to all."""
    if end.signal is not None and (end.failure is None or end.signal not in ("SIGABRT", "SIGTERM")):
        return _signalled(end, facts)
    if end.failure is not None:
        return _raised(end.failure, end.is_consequence)
    if missing := _script_missing(end.stderr):
        return Reason.SCRIPT_MISSING, f": {missing}"
    words = last_words(end.stderr)
    sentence = f": exit code {end.exit_code}, no traceback"
    return Reason.EXIT_CODE, f"{sentence}; last line: {words}" if words else sentence


_MEMORY_HINT = "; the kernel does this when memory runs out"
_SIGNALS = {
    "SIGSEGV": " crashed (SIGSEGV, a wrong memory access in native code)",
    "SIGBUS": " crashed (SIGBUS); this happens when shared memory (/dev/shm) is full",
}


def _signalled(end: _RankEnd, facts: EndFacts) -> tuple[Reason, str]:
    if end.signal == "SIGKILL":
        if facts.out_of_memory_kills:
            return Reason.OUT_OF_MEMORY, " was killed by the kernel because memory ran out (SIGKILL)"
        return Reason.KILLED, f" was killed (SIGKILL){_MEMORY_HINT}"
    if end.is_consequence and end.signal != "SIGTERM":
        return Reason.KILLED, f" lost the other ranks and was aborted ({end.signal})"
    words = last_words(end.stderr)
    sentence = _SIGNALS.get(end.signal or "", f" was ended by a signal ({end.signal})")
    return Reason.KILLED, sentence + (f"; last line: {words}" if words else "")


def _raised(failure: Failure, is_consequence: bool) -> tuple[Reason, str]:
    text, place = failure.exception, failure.place
    if is_consequence:
        return Reason.SCRIPT_ERROR, f" lost its connection to the other ranks: {text}{place}"
    if re.search(r"(?:CUDA|HIP|XPU)\b.*out of memory", text):
        return Reason.OUT_OF_MEMORY, f": {_gpu_memory(text)}{place}. A smaller batch size needs less"
    if "is killed by signal: Killed" in text:
        return Reason.OUT_OF_MEMORY, f": a data loader's process was killed{_MEMORY_HINT}{place}"
    if re.search(r"^MemoryError|an't allocate memory|annot allocate memory|std::bad_alloc", text):
        return Reason.OUT_OF_MEMORY, f": not enough memory: {text}{place}"
    if re.search(r"/torch_\d+_\d+|shared memory", text) and "No space left" in text:
        return Reason.DISK_FULL, f": no space left in shared memory (/dev/shm): {text}{place}"
    if re.search(r"\[Errno 28\]|No space left on device|\[Errno 122\]|Disk quota exceeded", text):
        return Reason.DISK_FULL, f": no space left on the disk: {text}{place}"
    if re.search(r"PytorchStreamWriter failed writing|inline_container\.cc.*unexpected pos", text):
        return Reason.DISK_FULL, f": a checkpoint could not be written, as on a full disk: {text}{place}"
    if text.startswith("ModuleNotFoundError"):
        return (
            Reason.SCRIPT_ERROR,
            f": {text}{place}. Install it in the Python that trains, or choose another",
        )
    return Reason.SCRIPT_ERROR, f": {text}{place}"


def _gpu_memory(text: str) -> str:
    """torch's own figures, without the advice it gives around them."""
    wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", text)
    there = re.search(r"(GPU \d+) has a total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free", text)
    figures = f", {wanted[1]} wanted" if wanted else ""
    figures += f", {there[3]} of {there[2]} free on {there[1]}" if there else ""
    return f"{text[text.find('CUDA') : text.find('CUDA') + 4] or 'GPU'} out of memory{figures}"


def _script_missing(stderr: str) -> str | None:
    """What Python says when there is nothing to run."""
    if found := re.search(r"can't open file '(.+?)': \[Errno \d+\] (.+)", stderr):
        return f"the script {found[1]} cannot be opened: {found[2]}"
    for pattern in (r"finding module specification for '(.+?)'", r"^\S*python\S*: No module named (\S+)$"):
        if found := re.search(pattern, stderr, re.MULTILINE):
            return f"there is no module {found[1]} to run"
    return None
