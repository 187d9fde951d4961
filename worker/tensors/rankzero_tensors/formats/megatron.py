"""Megatron's checkpoints: names and layouts of its own, which only its bridge turns into those of a plain model."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

import torch

from ..sources import CheckpointRefused, TensorSource
from . import safetensors_files

BRIDGE = "megatron.bridge"
ITERATION = re.compile(r"iter_\d+|release")
RANK = re.compile(r"mp_rank_\d{2}(?:_\d{3})*")
"""The folder of a rank, by its place in the model: `mp_rank_00_000`."""
TORCH_DIST = {".metadata", "common.pt"}
"""Megatron's own use of torch.distributed.checkpoint: `torch_dist`."""
BY_HAND = (
    "AutoBridge.from_auto_config(FOLDER, HF_MODEL).export_ckpt(FOLDER, TARGET), on a machine that has Megatron-Bridge "
    "(pip install megatron-bridge)."
)


def recognize(path: Path) -> bool:
    """Whether it is the folder of one of Megatron's iterations, or contains one."""
    return path.is_dir() and _iteration(path) is not None


def open(path: Path) -> TensorSource:
    """Export it by the bridge that the run's Python has, and open the result. Raises CheckpointRefused, OSError."""
    folder = _iteration(path) or path
    bridge = _bridge()
    if bridge is None:
        raise CheckpointRefused(
            f"{folder.name} is a checkpoint of Megatron, which only Megatron-Bridge converts, and the Python that "
            f"trains has none: install it there, or convert it by {BY_HAND}"
        )
    config = next((place for place in (folder, folder.parent, path.parent) if (place / "config.json").is_file()), None)
    if config is None:
        raise CheckpointRefused(
            f"{folder.name} is a checkpoint of Megatron, and Megatron-Bridge needs the config.json of the Hugging Face "
            f"model, which is neither in it nor beside it: save it there, or convert it by {BY_HAND}"
        )
    return _exported(bridge, folder, config)


def _iteration(path: Path) -> Path | None:
    """The iteration's folder: itself, or the last one directly in it."""
    names = {entry.name for entry in path.iterdir()}
    if names >= TORCH_DIST or any(
        (path / name / "model_optim_rng.pt").is_file() for name in names if RANK.fullmatch(name)
    ):
        return path
    iterations = sorted((path / name for name in names if ITERATION.fullmatch(name)), key=lambda one: one.name)
    return next((one for one in reversed(iterations) if one.is_dir() and _iteration(one)), None)


def _bridge() -> ModuleType | None:
    with suppress(ImportError):  # of the package around it
        if importlib.util.find_spec(BRIDGE):
            return importlib.import_module(BRIDGE)
    return None


def _exported(bridge: ModuleType, folder: Path, config: Path) -> TensorSource:
    """Export into a temporary folder, which lasts as long as what is read from it."""
    target = Path(tempfile.mkdtemp(prefix="megatron-"))
    try:
        with redirect_stdout(sys.stderr):  # it prints its progress, and stdout is for ours
            auto = bridge.AutoBridge.from_auto_config(str(folder), str(config))
            auto.export_ckpt(str(folder), str(target), show_progress=False)
        return _Exported(safetensors_files.open(target), folder, target)
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, CheckpointRefused | OSError) or not isinstance(error, Exception):
            raise
        raise CheckpointRefused(
            f"Megatron-Bridge does not convert {folder.name}: {error}. Try it by hand: {BY_HAND}"
        ) from error


class _Exported(TensorSource):
    """What the bridge wrote, as the checkpoint that it read."""

    format = "Megatron by Megatron-Bridge"

    def __init__(self, exported: TensorSource, folder: Path, target: Path) -> None:
        self.files = sorted(file for file in folder.rglob("*") if file.is_file())
        self.tensors, self.tied = exported.tensors, exported.tied
        self.notes = [f"Megatron-Bridge gave the tensors of {folder.name} their names and shapes.", *exported.notes]
        self._exported, self._target = exported, target

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor of the export."""
        return self._exported.read(name)

    def samples(self, name: str) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
        """Yield parts of the export."""
        return self._exported.samples(name)

    def close(self) -> None:
        """Remove the export."""
        self._exported.close()
        shutil.rmtree(self._target, ignore_errors=True)
