"""Looks a failure up in the table of causes: the reason, the sentence and the next step."""

from __future__ import annotations

import re
from dataclasses import dataclass

from domain.messages import Reason
from worker.diagnosis.causes import files, machine, pytorch
from worker.diagnosis.causes.cause import AS_RAISED
from worker.diagnosis.tracebacks.exceptions import PythonFailure, shorten

TABLE = (
    *machine.MEMORY, *pytorch.CUDA, *pytorch.NCCL, *machine.DISK, *machine.PORTS, *pytorch.DDP,
    *pytorch.IMPORTS, *machine.NETWORK,
)  # fmt: skip
"""The first row that fits speaks: what is specific stands before what is general."""
SMALLER_ON_GPU = "Halve the batch per GPU and double the accumulation: the global batch stays."


@dataclass(frozen=True)
class Explanation:
    """What a failure is called, what is said of it, and what to try."""

    reason: Reason
    says: str
    next_step: str | None = None


def explain(failure: PythonFailure, node: str, place: files.Workplace) -> Explanation:
    """What is known of an exception; the exception itself where nothing is."""
    text = failure.all_text
    words = {"text": failure.exception, "place": failure.place, "origin": failure.origin, "node": node}
    if re.search(r"(?:CUDA|HIP|XPU)\b.*out of memory|OutOfMemoryError: CUDA", text):
        says = f"{_gpu_memory(text)}{failure.place}"
        return Explanation(Reason.OUT_OF_MEMORY, says, SMALLER_ON_GPU + _fragmented(text))
    if (missing := files.missing_file(failure, node, place)) is not None:
        return Explanation(Reason.SCRIPT_ERROR, _filled(AS_RAISED, words), missing)
    for cause in TABLE:
        if found := cause.match(text):
            groups = {name: value or "" for name, value in found.groupdict().items()}
            named = words | groups | {"wanted": _wanted(groups)}
            return Explanation(cause.reason, _filled(cause.says, named), _filled(cause.next_step, named))
    return Explanation(Reason.SCRIPT_ERROR, _filled(AS_RAISED, words))


def size_words(size_bytes: float) -> str:
    """64.00 GiB, as torch writes sizes."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size_bytes >= 1024 and len(units) > 1:
        size_bytes /= 1024
        del units[0]
    return f"{size_bytes:.0f} bytes" if units[0] == "bytes" else f"{size_bytes:.2f} {units[0]}"


def _filled(template: str, words: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: words.get(name[1], name[0]), template)


def _wanted(groups: dict[str, str]) -> str:
    return size_words(int(groups["bytes"])) if groups.get("bytes") else groups.get("size", "")


def _gpu_memory(text: str) -> str:
    """torch's own figures, without the advice it gives around them."""
    wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", text)
    there = re.search(
        r"(GPU \d+) has a total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free"
        r"|\((GPU \d+); ([\d.]+ \w+) total capacity;.*?([\d.]+ \w+) free",
        text,
    )
    figures = f", {wanted[1]} wanted" if wanted else ""
    if there:
        gpu, total, free = (group for group in there.groups() if group)
        figures += f", {free} of {total} free on {gpu}"
    kind = re.search(r"\b(CUDA|HIP|XPU)\b", text)
    return shorten(f"{kind[1] if kind else 'GPU'} out of memory{figures}")


def _fragmented(text: str) -> str:
    """Much reserved and not used: the allocator's own remedy is worth trying first."""
    found = re.search(r"([\d.]+) GiB is reserved by PyTorch but unallocated", text)
    if found is None or float(found[1]) < 1:
        return ""
    return (
        f" {found[1]} GiB lie unused between tensors: --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
        f"may be enough."
    )
