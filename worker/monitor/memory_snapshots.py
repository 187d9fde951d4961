"""Read what the probe wrote of a rank's device when an allocation failed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from domain.device_memory import DeviceMemory

MAX_BYTES = 1024 * 1024


def read_device_memory(folder: Path) -> dict[int, DeviceMemory]:
    """Return rank -> its device at the last failed allocation, of all ranks on this node that had one."""
    latest: dict[int, DeviceMemory] = {}
    for path in folder.glob("*.oom.json"):
        with suppress(OSError, ValueError):
            with path.open("rb") as file:
                memory = DeviceMemory.model_validate_json(file.read(MAX_BYTES))
            if memory.rank not in latest or memory.at > latest[memory.rank].at:
                latest[memory.rank] = memory
    return latest
