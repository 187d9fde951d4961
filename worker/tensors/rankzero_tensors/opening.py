"""Tells a checkpoint's format from its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .formats import distributed, megatron, rank_files, safetensors_files, torch_files, zero
from .model_part import is_other
from .several import SeveralModels, models_in
from .sources import CheckpointRefused, TensorSource


class Format(Protocol):
    """A module of `formats`."""

    def recognize(self, path: Path) -> bool:
        """Whether the file or folder is of this format, by names and first bytes alone. Raises OSError."""

    def open(self, path: Path) -> TensorSource:
        """Open it. Raises CheckpointRefused, OSError."""


SHARDED: Sequence[Format] = (zero, megatron, rank_files, distributed)
"""Formats of several ranks' files, also in a folder inside: a state of Accelerate, a step of verl."""
FORMATS: Sequence[Format] = (*SHARDED, safetensors_files, torch_files)
"""Modules of `formats` in the order in which they are asked: the more special first."""


def open_source(path: Path) -> TensorSource:
    """Open a checkpoint: a file, or an unpacked folder. Raises CheckpointRefused, OSError."""
    if models := models_in(path):
        return _opened(models)
    for form in FORMATS:
        if form.recognize(path):
            return form.open(path)
        if form in SHARDED and (models := _inside(path, [form])):
            return _opened(models)
    if models := _inside(path, FORMATS):
        return _opened(models)
    raise CheckpointRefused(
        f"{path.name} is of no known format: known are safetensors, Hugging Face shards, files of torch.save, "
        "distributed checkpoints (DCP, FSDP2), Accelerate's folders and DeepSpeed's."
    )


def _inside(path: Path, formats: Sequence[Format]) -> list[Path]:
    """Return the folders inside a folder that are of these formats, but for those of optimizers and the like."""
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
    models = [folder for folder in folders if not is_other(folder.name)]
    return [folder for folder in models if any(form.recognize(folder) for form in formats)]


def _opened(models: Sequence[Path]) -> TensorSource:
    """Open one model, or several as one."""
    if len(models) == 1:
        return open_source(models[0])
    return SeveralModels({model.name.removesuffix(model.suffix): open_source(model) for model in models})
