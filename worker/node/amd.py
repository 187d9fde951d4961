"""AMD's GPUs as Linux shows them in /sys: what they are, how they are used, and by which processes.

No library of AMD's is needed. What a file does not say is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from domain.messages import Device

VENDOR = "0x1002"
LEAST_BYTES = 4 * 1024**3
"""Own memory of a GPU that trains; processors with graphics have less."""


@dataclass(frozen=True)
class Card:
    """One GPU that ROCm can use."""

    id: str
    """GPU- and the sixteen digits by which ROCR_VISIBLE_DEVICES names it."""
    folder: Path
    kfd_id: str
    """Its number in the driver's list of processes."""


class AmdGpus:
    """Reads the GPUs of this machine; none where AMD's compute driver is not loaded."""

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._sysfs = sysfs

    def cards(self) -> list[Card]:
        """The GPUs with memory of their own that the compute driver has, in the order of their cards."""
        kfd_ids = self._kfd_ids()
        cards = []
        for card in sorted((self._sysfs / "class/drm").glob("card*"), key=lambda path: _order(path.name)):
            folder = card / "device"
            unique_id = _text(folder / "unique_id").removeprefix("0x")
            is_gpu = re.fullmatch(r"card\d+", card.name) and _text(folder / "vendor") == VENDOR
            if is_gpu and unique_id in kfd_ids and (_number(folder / "mem_info_vram_total") or 0) >= LEAST_BYTES:
                cards.append(Card(f"GPU-{unique_id}", folder, kfd_ids[unique_id]))
        return cards

    def devices(self) -> list[Device]:
        """The GPUs as devices of the node."""
        return [
            Device(
                id=card.id,
                kind="cuda",  # torch calls them so, too
                name=_text(card.folder / "product_name") or f"AMD GPU {_text(card.folder / 'device')}",
                memory_bytes=int(_number(card.folder / "mem_info_vram_total") or 0),
            )
            for card in self.cards()
        ]

    def levels(self, card: Card) -> dict[str, float]:
        """The values that are read of a GPU, by the names that NVIDIA's have."""
        hwmon = next(iter(sorted((card.folder / "hwmon").glob("hwmon*"))), card.folder)
        read = {
            "utilisation_percent": _number(card.folder / "gpu_busy_percent"),
            "memory_used_bytes": _number(card.folder / "mem_info_vram_used"),
            "temperature_c": _first(hwmon, ("temp1_input", "temp2_input"), 1e-3),
            "power_w": _first(hwmon, ("power1_average", "power1_input"), 1e-6),
            "energy_j": _first(hwmon, ("energy1_input",), 1e-6),
            "sm_clock_hz": _first(hwmon, ("freq1_input",)),
            "memory_clock_hz": _first(hwmon, ("freq2_input",)),
            "ecc_corrected_errors": _errors(card.folder, "ce"),
            "ecc_uncorrected_errors": _errors(card.folder, "ue"),
        }
        return {name: value for name, value in read.items() if value is not None}

    def processes(self, card: Card) -> dict[int, int]:
        """Process id -> the bytes that it has on a GPU."""
        held: dict[int, int] = {}
        for path in (self._sysfs / "class/kfd/kfd/proc").glob(f"*/vram_{card.kfd_id}"):
            size = _number(path)
            if size and path.parent.name.isdecimal():
                held[int(path.parent.name)] = int(size)
        return held

    def _kfd_ids(self) -> dict[str, str]:
        """The numbers of GPUs in the compute driver, by their unique ids as sixteen hexadecimal digits."""
        ids: dict[str, str] = {}
        for node in (self._sysfs / "class/kfd/kfd/topology/nodes").glob("*"):
            properties = dict(_pairs(node / "properties"))
            if properties.get("unique_id", "0") != "0" and properties["unique_id"].isdecimal():
                ids[f"{int(properties['unique_id']):016x}"] = _text(node / "gpu_id")
        return ids


def _order(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", name)
    return int(digits or 0), name


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        yield name, value.strip()


def _errors(folder: Path, kind: str) -> float | None:
    """Errors of the memory: `ue: 0` and `ce: 3` in one file."""
    match = re.search(rf"^{kind}:\s*(\d+)", _text(folder / "ras/umc_err_count"), re.MULTILINE)
    return float(match[1]) if match else None


def _first(folder: Path, names: tuple[str, ...], unit: float = 1.0) -> float | None:
    """The first of these files that says something, in the unit's parts."""
    for name in names:
        if (value := _number(folder / name)) is not None:
            return value * unit
    return None


def _number(path: Path) -> float | None:
    with suppress(ValueError):
        return float(_text(path))
    return None


def _text(path: Path) -> str:
    with suppress(OSError, ValueError):
        return path.read_text().strip()
    return ""
