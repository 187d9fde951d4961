"""Merges in the test's own process, and checkpoints to merge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from worker.tensors.rankzero_tensors import merge
from worker.tensors.rankzero_tensors.reports import ProgressReport

SILENT = ProgressReport()


def merged(source: Path, target: Path, *options: str) -> dict[str, Any]:
    """Merge a checkpoint; the result's document."""
    return merge.run([str(source), str(target), *options], SILENT)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a merged folder, read by safetensors' own library."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return found


def metadata_of(path: Path) -> dict[str, str]:
    """The metadata in a file's header."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata())


def document_of(folder: Path) -> dict[str, Any]:
    """What the folder says of its own merge."""
    return dict(json.loads((folder / "merge.json").read_text()))


def require_equal(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """The same names, types, shapes and bytes."""
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert same_bytes(found[name], tensor), name


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bytes, NaNs too."""
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


def model() -> dict[str, torch.Tensor]:
    """A small state dict of several types."""
    return {
        "embed.weight": torch.arange(24, dtype=torch.float32).reshape(6, 4) / 7,
        "layer.weight": torch.arange(16, dtype=torch.float32).reshape(4, 4).to(torch.bfloat16),
        "layer.scale": torch.linspace(-3, 3, 5).to(torch.float8_e4m3fn),
        "norm.steps": torch.tensor(7, dtype=torch.int64),
        "mask": torch.tensor([True, False, True]),
        "empty": torch.empty(0, 3),
        "broken": torch.tensor([float("nan"), float("inf"), -0.0], dtype=torch.float16),
    }
