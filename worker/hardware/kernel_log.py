"""Faults of the hardware that the kernel logs while runs train: Xids, hardware errors, processes out of memory."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

RECORD_BYTES = 8192
"""The kernel hands out one record a read, and none is longer."""
MOST_RECORDS = 1000
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
KINDS = (
    (re.compile(r"\[Hardware Error\]: Machine check.*|mce: \[Hardware Error\].*"), "hardware error"),
    (re.compile(r"EDAC .*?(\d+) UE "), "uncorrected memory error"),
    (
        re.compile(r"Out of memory: Killed process \d+ \(([^)]*)\)"),
        "the kernel killed {0} for lack of memory",
    ),
    (re.compile(r"(\S+): Link (?:is )?[Dd]own"), "the network card {0} lost its link"),
)


@dataclass
class KernelFaults:
    """Faults that were logged."""

    xids: list[tuple[str, int]] = field(default_factory=list)
    """(the GPU's address on the bus, Xid)"""
    events: dict[str, float] = field(default_factory=dict)
    """A sentence -> how often it was logged."""


class KernelLog:
    """Follows the kernel's log from now on; reads nothing where that is not allowed."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def read(self) -> KernelFaults:
        """Return the faults since the last call."""
        faults = KernelFaults()
        for record in self._records():
            if match := XID.search(record):
                faults.xids.append((match[1], int(match[2])))
            for pattern, words in KINDS:
                if match := pattern.search(record):
                    text = words.format(*match.groups())
                    faults.events[text] = faults.events.get(text, 0.0) + 1.0
        return faults

    def _records(self) -> list[str]:
        records: list[str] = []
        while self._file is not None and len(records) < MOST_RECORDS:
            try:
                data = os.read(self._file, RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read: the next one is there
                continue
            except OSError:  # no more records for now
                break
            if not data:
                break
            records += data.decode(errors="replace").splitlines()
        return records
