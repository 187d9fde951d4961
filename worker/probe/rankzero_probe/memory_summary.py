"""Summarise torch's snapshot of a device: what is in use, what for, and the largest blocks with the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import activity

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
