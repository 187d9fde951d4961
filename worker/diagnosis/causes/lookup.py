"""Look up a failure in the table of causes: the reason, the sentence and the next step."""

from __future__ import annotations

import re
from dataclasses import dataclass

from domain.device_memory import KINDS, DeviceMemory, in_words
from domain.messages import Reason
from domain.text.formats import short_path, size
from worker.diagnosis.causes import files, machine, pytorch
from worker.diagnosis.causes.cause import AS_RAISED
from worker.diagnosis.causes.tracebacks import PythonFailure, shorten

TABLE = (
    *machine.MEMORY, *pytorch.CUDA, *pytorch.NCCL, *machine.DISK, *machine.PORTS, *pytorch.DDP,
    *pytorch.IMPORTS, *machine.NETWORK, *machine.TEXT,
)  # fmt: skip
"""The first matching row wins: specific rows precede general ones."""
SMALLER_ON_GPU = "Halve the batch per GPU and double the accumulation: the global batch stays."
EXPANDABLE = "--env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may be enough."


@dataclass(frozen=True)
class Explanation:
    """Reason, sentence and next step for a failure."""

    reason: Reason
    says: str
    next_step: str | None = None


def explain(
    failure: PythonFailure, node: str, workplace: files.Workplace, memory: DeviceMemory | None = None
) -> Explanation:
    """Explain an exception; an unknown one is shown as it is. `memory` is of the rank's last failed allocation."""
    text = failure.all_text
    fields = {"text": failure.exception, "place": failure.place, "origin": failure.origin, "node": node}
    if is_gpu_memory(text):
        if memory is not None:
            return _gpu_memory_explained(memory, failure.place)
        says = f"{_gpu_memory(text)}{failure.place}"
        return Explanation(Reason.OUT_OF_MEMORY, says, SMALLER_ON_GPU + _fragmented(text))
    if (missing := files.missing_file(failure, node, workplace)) is not None:
        return Explanation(Reason.SCRIPT_ERROR, _filled(AS_RAISED, fields), missing)
    if (pointer := files.pointer(failure, workplace)) is not None:
        return Explanation(Reason.SCRIPT_ERROR, _filled(AS_RAISED, fields), pointer)
    if (sentences := question(failure)) is not None:
        return Explanation(Reason.SCRIPT_ERROR, *sentences)
    for cause in TABLE:
        if match := cause.match(text):
            groups = {name: value or "" for name, value in match.groupdict().items()}
            all_fields = fields | groups | {"requested": _requested_size(groups)}
            return Explanation(cause.reason, _filled(cause.says, all_fields), _filled(cause.next_step, all_fields))
    return Explanation(Reason.SCRIPT_ERROR, _filled(AS_RAISED, fields))


def is_gpu_memory(text: str) -> bool:
    """Whether an exception's text says that a GPU has no memory left."""
    return re.search(r"(?:CUDA|HIP|XPU)\b.*out of memory|OutOfMemoryError: CUDA", text) is not None


def _gpu_memory_explained(memory: DeviceMemory, place: str) -> Explanation:
    next_step = SMALLER_ON_GPU
    if memory.is_fragmented:
        next_step += f" {size(memory.unused_bytes)} are unused between tensors: {EXPANDABLE}"
    if memory.lines and (line := memory.lines[0]).file:
        next_step += (
            f" Most memory, {size(line.bytes)} of {KINDS[line.kind]}, was allocated in line {line.line} "
            f"of {short_path(line.file)}."
        )
    return Explanation(Reason.OUT_OF_MEMORY, f"CUDA out of memory, {in_words(memory)}{place}", next_step)


def size_words(size_bytes: float) -> str:
    """Format a size as torch does: 64.00 GiB."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size_bytes >= 1024 and len(units) > 1:
        size_bytes /= 1024
        del units[0]
    return f"{size_bytes:.0f} bytes" if units[0] == "bytes" else f"{size_bytes:.2f} {units[0]}"


def _filled(template: str, fields: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: fields.get(name[1], name[0]), template)


def _requested_size(groups: dict[str, str]) -> str:
    return size_words(int(groups["bytes"])) if groups.get("bytes") else groups.get("size", "")


def _gpu_memory(text: str) -> str:
    """Return torch's figures without its advice."""
    requested = re.search(r"Tried to allocate ([\d.]+ \w+)", text)
    capacity = re.search(
        r"(GPU \d+) has a total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free"
        r"|\((GPU \d+); ([\d.]+ \w+) total capacity;.*?([\d.]+ \w+) free",
        text,
    )
    figures = f", {requested[1]} requested" if requested else ""
    if capacity:
        gpu, total, free = (group for group in capacity.groups() if group)
        figures += f", {free} of {total} free on {gpu}"
    kind = re.search(r"\b(CUDA|HIP|XPU)\b", text)
    return shorten(f"{kind[1] if kind else 'GPU'} out of memory{figures}")


def _fragmented(text: str) -> str:
    """Suggest the allocator's own setting if a GiB or more is reserved and unused."""
    unallocated = re.search(r"([\d.]+) GiB is reserved by PyTorch but unallocated", text)
    if unallocated is None or float(unallocated[1]) < 1:
        return ""
    return f" {unallocated[1]} GiB are unused between tensors: {EXPANDABLE}"


# Recognise a script that asks a person something: a launched run has nobody at its standard input. Pure.

_GETPASS = frozenset({"getpass", "unix_getpass", "fallback_getpass", "_raw_input"})
_NOBODY = "which a launched run does not have"
_ANSWER = (
    "Let the script take the answer from an argument or a variable (--env), or use a default where "
    "sys.stdin.isatty() is False."
)
_BREAKPOINT = "Remove the breakpoint, or switch it off with --env PYTHONBREAKPOINT=0; debug the script in a terminal."


def question(failure: PythonFailure) -> tuple[str, str] | None:
    """Return the sentence and the next step if the script waited for a person's answer."""
    kind = failure.exception.partition(":")[0].rpartition(".")[2]
    if kind == "BdbQuit":
        says = f"the script stops at a breakpoint{failure.place}: a debugger needs a standard input, {_NOBODY}"
        return says, _BREAKPOINT
    if kind == "EOFError" and not _GETPASS.isdisjoint(failure.functions):
        return f"the script asks for a password on its standard input, {_NOBODY}{failure.place}", _ANSWER
    if kind == "EOFError" and "EOF when reading a line" in failure.exception:
        return f"the script asks for input on its standard input, {_NOBODY}{failure.place}", _ANSWER
    return None
