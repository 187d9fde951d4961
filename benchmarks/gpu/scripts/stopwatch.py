"""Seconds between moments of a device's work: by CUDA events, on a CPU by the clock."""

from __future__ import annotations

import time
from typing import Any

import torch


class Stopwatch:
    """Marks moments; the times between them are read at the end, so that no step waits for its own."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Note this moment, on the device the one at which it has done all work so far."""
        if self._is_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Times between one mark and the next."""
        pairs = zip(self._marks, self._marks[1:])  # noqa: B905
        if not self._is_cuda:
            return [after - before for before, after in pairs]
        torch.cuda.synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairs]
