"""A checkpoint that is open, with given tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from worker.tensors.rankzero_tensors.reports import ProgressReport
from worker.tensors.rankzero_tensors.sources import NONE_TIED, TensorFacts, TensorSource


class OpenedTensors(TensorSource):
    """A source whose tensors are in memory."""

    format = "in memory"
    files: tuple[Path, ...] = ()

    def __init__(self, tensors: Mapping[str, torch.Tensor], tied: Mapping[str, str] = NONE_TIED) -> None:
        self.values = tensors
        self.tensors = {name: facts_of(tensor) for name, tensor in tensors.items()}
        self.tied = tied
        self.notes = ["A note."]

    def read(self, name: str) -> torch.Tensor:
        return self.values[name]

    def close(self) -> None:
        pass


def facts_of(tensor: torch.Tensor) -> TensorFacts:
    return TensorFacts(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.nbytes)


class Progress(ProgressReport):
    """Keeps what would be printed."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[tuple[int, int, str]] = []

    def progress(self, done_bytes: int, total_bytes: int, doing: str) -> None:
        self.reported.append((done_bytes, total_bytes, doing))
