"""Sample a rank's device memory, and write down what filled it when an allocation fails.

torch calls the observer when its allocator gives up, before it raises; the error reaches the script as it is.
"""

from __future__ import annotations

import functools
import json
import os
import pickle  # nosec B403: only writes
import sys
import time
from collections.abc import Iterator
from typing import Any

from . import activity, named_as_probe, process_state

PART = "memory snapshot"
SWITCH = "PROBE_MEMORY_HISTORY"
"""Set to 0, the lines that allocate are not recorded; the rest of the summary is."""
HISTORY_STEPS = 20
FULL_SHARE = 0.8
"""After so many steps the lines are recorded only while torch has had this share of the device."""
MAX_SNAPSHOTS = 20
"""A script may catch the error and try again, many times."""


def hook_into_torch(torch: Any) -> None:
    """Attach the observer when the script first uses a GPU: doing it earlier would initialise CUDA."""
    lazy_call = getattr(getattr(torch, "cuda", None), "_lazy_call", None)
    if lazy_call is not None:
        lazy_call(_begin)


def sample(state: process_state.ProcessState) -> None:
    """Read the memory of the current device between two steps, where it holds no activations."""
    state.is_memory_due = False
    if PART in state.off:
        return
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    try:
        device = cuda.current_device()
        total = int(cuda.get_device_properties(device).total_memory)
        state.device_memory = {
            "device_memory_bytes": int(cuda.memory_allocated(device)),
            "device_memory_total_bytes": total,
        }
        _record_lines(state, cuda, int(cuda.max_memory_reserved(device)) >= FULL_SHARE * total)
    except Exception as error:
        state.failed(PART, error)


def stop(state: process_state.ProcessState) -> None:
    """Record no more lines of blocks. Raises what torch raises."""
    if state.is_recording_history:
        _record(state, is_on=False)


def _begin() -> None:
    """Attach the observer, or note why not. Called by torch while it initialises CUDA; never raises."""
    state = process_state.current
    try:
        reason = _attach(state, sys.modules["torch"])
        state.note("memory", snapshots=reason is None, why=reason)
    except Exception as error:
        state.failed(PART, error)


def _attach(state: process_state.ProcessState, torch: Any) -> str | None:
    """Attach the observer and begin to record lines; return why this is not possible, None where it is."""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return f"torch {torch.__version__} does not report out-of-memory errors"
    if (backend := torch.cuda.memory.get_allocator_backend()) != "native":
        return f"torch takes no snapshot of the allocator {backend}"
    attach(_observe)
    memory = torch.cuda.memory
    if os.environ.get(SWITCH, "").strip() != "0" and not _is_recording(torch):
        state.record_history = memory._record_memory_history
        memory._record_memory_history = _leaving_to_script(memory._record_memory_history)
        _record(state, is_on=True)
    return None


def _is_recording(torch: Any) -> bool:
    """Whether the script has begun to record by itself."""
    is_enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return is_enabled is not None and bool(is_enabled())


def _leaving_to_script(original: Any) -> Any:
    """From the script's own call on, the recording is the script's."""

    @functools.wraps(original)
    def _record_memory_history(*args: Any, **kwargs: Any) -> Any:
        process_state.current.record_history = None
        return original(*args, **kwargs)

    return named_as_probe(_record_memory_history)


def _record_lines(state: process_state.ProcessState, cuda: Any, is_full: bool) -> None:
    is_on = is_full or state.step < HISTORY_STEPS
    if is_on is not state.is_recording_history:
        _record(state, is_on)


def _record(state: process_state.ProcessState, is_on: bool) -> None:
    """Record the Python lines of live blocks alone: no history of past ones is kept."""
    if state.record_history is not None:
        state.record_history("state" if is_on else None, context="state", stacks="python", max_entries=1)
        state.is_recording_history = is_on


def _observe(device: int, requested: int, total: int, free: int) -> None:
    """Write the summary and torch's snapshot. Whatever happens here, the script sees only its own error."""
    state = process_state.current
    if PART in state.off or state.snapshots >= MAX_SNAPSHOTS:
        return
    state.snapshots += 1
    try:
        _write(state, {"device": device, "requested_bytes": requested, "total_bytes": total, "free_bytes": free})
    except BaseException as error:
        state.failed(PART, error)


def _write(state: process_state.ProcessState, failure: dict[str, int]) -> None:
    doing, lines = activity.thread_activity(state.thread)
    snapshot = sys.modules["torch"].cuda.memory._snapshot()
    optimizers = [optimizer for reference in list(state.optimizers) if (optimizer := reference()) is not None]
    summary = {
        "at": round(time.time(), 3), "pid": os.getpid(), "rank": _rank(), "step": state.step, "in": doing,
        "stack": lines, "batch_size": state.epoch.loader.batch_size if state.epoch else None,
        **failure, **summarise(snapshot, failure["device"], optimizers),
    }  # fmt: skip
    path = f"{os.environ['RANKZERO_PROBE_DIR']}/{os.getpid()}.oom"
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    _replace(f"{path}.json", json.dumps(summary).encode())
    _replace(f"{path}.pickle", pickle.dumps(snapshot))


def _replace(path: str, data: bytes) -> None:
    new = f"{path}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123
        file.write(data)
    os.replace(new, path)  # noqa: PTH105


def _rank() -> int:
    if process_state.is_in_process_group():
        distributed: Any = sys.modules["torch.distributed"]
        return int(distributed.get_rank())
    return int(os.environ.get("RANK") or 0)


# Summarise torch's snapshot of a device: what is in use, what for, and the largest blocks with the user's line.

MAX_LINES = 10
PARAMETERS, GRADIENTS, OPTIMIZER, OTHER = "parameters", "gradients", "optimizer", "other"


def summarise(snapshot: Any, device: int, optimizers: list[Any]) -> dict[str, Any]:
    """Return sizes in bytes, the shares of what the optimizers hold, and the lines that allocated the most."""
    segments = [segment for segment in snapshot["segments"] if segment.get("device", device) == device]
    live, unused = [], [0]
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                live.append(block)
            elif block["state"] == "inactive":
                unused.append(int(block["size"]))
    owned = _owned(optimizers, device)
    shares = {kind: _total(owned, kind) for kind in (PARAMETERS, GRADIENTS, OPTIMIZER)}
    allocated = sum(int(block["size"]) for block in live)
    return {
        "reserved_bytes": sum(int(segment["total_size"]) for segment in segments),
        "allocated_bytes": allocated,
        "largest_unused_bytes": max(unused),
        "shares": {**shares, OTHER: max(0, allocated - sum(shares.values()))},
        "missing_bytes": _missing(optimizers, device, shares[GRADIENTS]),
        "lines": _lines(live, {address: kind for address, (kind, _) in owned.items()}),
    }


def _owned(optimizers: list[Any], device: int) -> dict[int, tuple[str, int]]:
    """Return address -> (kind, bytes) of each storage on the device that an optimizer refers to."""
    owned: dict[int, tuple[str, int]] = {}
    for kind, tensor in _tensors(optimizers):
        for address, size in _storage(tensor, device):
            owned.setdefault(address, (kind, size))
    return owned


def _storage(tensor: Any, device: int) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of a tensor's storage, if it is on the device."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # this rank's shard of a DTensor
    if tensor.device.type == "cuda" and tensor.device.index == device:
        storage = tensor.untyped_storage()
        yield storage.data_ptr(), int(storage.nbytes())


def _tensors(optimizers: list[Any]) -> Iterator[tuple[str, Any]]:
    for parameter in _parameters(optimizers):
        yield PARAMETERS, parameter
    for parameter in _parameters(optimizers):
        if parameter.grad is not None:
            yield GRADIENTS, parameter.grad
    for optimizer in optimizers:
        for values in list(optimizer.state.values()):
            for value in list(values.values()) if isinstance(values, dict) else ():
                if hasattr(value, "untyped_storage"):
                    yield OPTIMIZER, value


def _parameters(optimizers: list[Any]) -> Iterator[Any]:
    return (parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"])


def _missing(optimizers: list[Any], device: int, gradients: int) -> int:
    """Bytes that gradients and the optimizers' state will take, as far as they do not exist yet."""
    trained = state = 0
    for optimizer in optimizers:
        own = [parameter for parameter in _parameters([optimizer]) if parameter.requires_grad]
        size = sum({address: size for parameter in own for address, size in _storage(parameter, device)}.values())
        trained += size
        if not optimizer.state:
            state += size * _moments(optimizer.defaults)
    return max(0, trained - gradients) + state


def _moments(defaults: dict[str, Any]) -> int:
    """How many values of each parameter's size an optimizer keeps: two with betas (Adam), one with momentum."""
    return 2 if "betas" in defaults else int(bool(defaults.get("momentum")))


def _total(owned: dict[int, tuple[str, int]], kind: str) -> int:
    return sum(size for owner, size in owned.values() if owner == kind)


def _lines(blocks: list[Any], kinds: dict[int, str]) -> list[dict[str, Any]]:
    """Return the user's lines that allocated the most, with the largest block of each."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for block in blocks:
        frame = _users_frame(block.get("frames") or ())
        kind, size = kinds.get(block.get("address", 0), OTHER), int(block["size"])
        file, number, function = frame or ("", 0, "")
        line = lines.setdefault(
            (kind, *(frame or ())),
            {
                "kind": kind,
                "file": file,
                "line": number,
                "function": function,
                "bytes": 0,
                "count": 0,
                "largest_bytes": 0,
            },
        )
        line["bytes"] += size
        line["count"] += 1
        line["largest_bytes"] = max(line["largest_bytes"], size)
    return sorted(lines.values(), key=lambda line: -line["bytes"])[:MAX_LINES]


def _users_frame(frames: Any) -> tuple[str, int, str] | None:
    """Return (file, line, function) of the innermost frame of the user's code."""
    for frame in frames:
        if not activity.is_library(frame["filename"]):
            return str(frame["filename"]), int(frame["line"]), str(frame["name"])
    return None
