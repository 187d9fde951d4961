"""Explain exit codes and signals, with the next step to try."""

from __future__ import annotations

import re
import signal

from domain.messages import Reason
from worker.diagnosis.causes.lookup import Explanation, size_words
from worker.diagnosis.causes.machine import KILLED_HINT, SMALLER
from worker.diagnosis.causes.tracebacks import clean_lines, find_crash, last_line, shorten, without_box


def by_signal(
    name: str, text: str, node: str, kills: int, limit_bytes: int | None, host_memory: str = ""
) -> Explanation:
    """Explain the end of a rank by a signal; `host_memory` describes the node's memory before it."""
    if name == "SIGKILL":
        return _killed(kills, limit_bytes, host_memory)
    next_step = _NEXT.get(name, "").replace("{node}", node) or None
    says = _SIGNALS.get(name, f" was ended by a signal ({name})")
    crash, last = find_crash(text), last_line(text)
    if crash is not None and crash[1] is not None:
        return Explanation(Reason.KILLED, f"{says}, {crash[1].rpartition('/')[2]} line {crash[2]}")
    return Explanation(Reason.KILLED, says + (f"; last line: {last}" if last else ""), next_step)


_CODES = {
    126: "its program could not be executed (no permission, or not executable)",
    127: "a command was not found",
    255: "it ended with -1",
}
_SIGNALS = {
    "SIGSEGV": " crashed (SIGSEGV, an invalid memory access in native code)",
    "SIGBUS": " crashed (SIGBUS); this happens when shared memory (/dev/shm) or the disk of a mapped file is full",
    "SIGILL": " crashed (SIGILL): a package uses instructions that this processor does not have",
    "SIGFPE": " crashed (SIGFPE, a division by zero in native code)",
    "SIGXCPU": " used up its CPU time (SIGXCPU, ulimit -t)",
    "SIGXFSZ": " wrote a file larger than allowed (SIGXFSZ, ulimit -f)",
    "SIGABRT": " was ended by a signal (SIGABRT)",
}
_WITH_STACK = "Launch it with --env PYTHONFAULTHANDLER=1: the log then shows the line at which it crashes."
_NEXT = {
    "SIGSEGV": _WITH_STACK,
    "SIGABRT": _WITH_STACK,
    "SIGFPE": _WITH_STACK,
    "SIGBUS": "Use fewer data-loader workers, or give the node more shared memory (a container: --shm-size=8g or "
    "--ipc=host).",
    "SIGILL": "Install a build of that package for this node's processor, or choose another node.",
    "SIGTERM": "Find out what sent it on node {node}: a time limit, a scheduler, or a person.",
    "SIGINT": "Somebody pressed Ctrl-C in its terminal; if nobody did, find out what sent it on node {node}.",
    "SIGHUP": "Find out what sent it on node {node}: a time limit, a scheduler, or a person.",
}
_LOOK_ABOVE = "The script chose this exit code itself (sys.exit): its log may show why."
_THROWN = re.compile(
    r"terminate called after throwing an instance of '(?P<type>.+)'\s+"
    r"what\(\):\s+(?P<what>.+(?:\n(?!Exception raised from|frame #|\s*$).+)*)"
)
_WATCHDOG = re.compile(r"^(?:\[[^\]]*\] ?)*(?:Process group|NCCL) watchdog thread terminated with exception: ")
_USAGE_ERROR = re.compile(r"^(?:\S+: )?(?:error|Error): (?P<message>.+)$")


def signal_name(number: int) -> str:
    """Return the signal's name: SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def by_exit_code(code: int | None, text: str) -> Explanation:
    """Explain an exit code without a traceback."""
    if code == 2 and (usage_error := _usage_error(text)) is not None:
        return Explanation(Reason.EXIT_CODE, f": bad argument (exit code 2): {usage_error}", _fix_argument(usage_error))
    meaning = _meaning(code)
    last = last_line(text)
    says = f": exit code {code}{meaning}, no traceback" + (f"; last line: {last}" if last else "")
    return Explanation(Reason.EXIT_CODE, says, _LOOK_ABOVE)


def _killed(kills: int, limit_bytes: int | None, host_memory: str) -> Explanation:
    if kills:
        limit = f"; the limit here is {size_words(limit_bytes)}" if limit_bytes else ""
        usage = f"; last sample: {host_memory}" if host_memory else ""
        says = f" was killed by the kernel because memory ran out (SIGKILL{limit}){usage}"
        return Explanation(Reason.OUT_OF_MEMORY, says, SMALLER)
    next_step = "If nobody killed it, watch the node's memory during training, and lower the batch or the number of "
    return Explanation(Reason.KILLED, f" was killed (SIGKILL){KILLED_HINT}", f"{next_step}data-loader workers.")


def _meaning(code: int | None) -> str:
    if code in _CODES:
        return f" ({_CODES[code]})"
    if code is not None and 128 < code < 160:
        return f" (a program it started was ended by {signal_name(code - 128)})"
    return ""


def _usage_error(text: str) -> str | None:
    """Return argparse's error line, or the text in click's error box."""
    lines = clean_lines(text)
    for number in range(len(lines) - 1, -1, -1):
        if _USAGE_ERROR.match(lines[number]):
            return shorten(lines[number])
        if re.match(r"[╭+][─-]+ Error [─-]+[╮+]$", lines[number]):
            return shorten(" ".join(filter(None, map(without_box, lines[number + 1 : number + 4]))))
    return None


def _fix_argument(usage_error: str) -> str:
    if re.search(r"unrecognized arguments:.*--local[-_]rank", usage_error):
        return "Choose the launcher torchrun: the legacy one adds --local-rank, which this script does not accept."
    if re.search(r"required:.*--local[-_]rank", usage_error):
        return "Choose the launcher `launch`: this script requires --local-rank, which only the legacy one adds."
    return "Correct the extra arguments (those after -- on the command line); the script's own --help lists them."


def by_missing_script(text: str) -> Explanation | None:
    """Explain a script or module that Python could not find; None if that is not the failure."""
    if match := re.search(r"can't open file '(.+?)': \[Errno \d+\] (.+)", text):
        says = f": the script {match[1]} cannot be opened: {match[2]}"
        return Explanation(Reason.SCRIPT_MISSING, says, "Check the script's path on the node.")
    for pattern in (r"finding module specification for '(.+?)'", r"^\S*python\S*: No module named (\S+)$"):
        if match := re.search(pattern, text, re.MULTILINE):
            next_step = "Launch the folder that contains the module, or install it in the Python that trains."
            return Explanation(Reason.SCRIPT_MISSING, f": there is no module {match[1]} to run", next_step)
    return None


def as_traceback(text: str) -> str:
    """Format an uncaught C++ exception (`what():  …`) as a Python traceback; empty if there is none.

    Its stack is left out, and so is what NCCL's watchdog, which ends the process, says of itself.
    """
    match = _THROWN.search(text)
    if match is None:
        return ""
    name, message = match["type"].rpartition("::")[2], _WATCHDOG.sub("", match["what"].strip())
    return f"Traceback (most recent call last):\n{name if message == match['type'] else f'{name}: {message}'}\n"
