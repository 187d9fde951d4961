"""Finds the models in a folder that holds more: Accelerate's states, HF Trainer's checkpoints, verl's steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from .names import listed
from .sources import TensorSource

FOLDERS = re.compile(r"pytorch_model(?:_fsdp)?(?:_\d+)?")
"""Accelerate's, of FSDP and of DeepSpeed; with a number from the second model on."""
FILES = re.compile(r"(?:model|pytorch_model)(?:_\d+)?\.(?:safetensors|bin)")


def models_in(path: Path) -> list[Path]:
    """Return the folders or files of models in one of Accelerate's folders; none where it is one model by itself."""
    if not path.is_dir():
        return []
    entries = sorted(path.iterdir())
    folders = [entry for entry in entries if FOLDERS.fullmatch(entry.name) and entry.is_dir()]
    files = [entry for entry in entries if FILES.fullmatch(entry.name) and entry.is_file()]
    is_several = len({file.suffix for file in files}) == 1 and len(files) > 1
    return folders or (files if is_several else [])


class SeveralModels(TensorSource):
    """The tensors of several models, each name after its model's: `model_1.layer.weight`."""

    format = "several models"

    def __init__(self, models: Mapping[str, TensorSource]) -> None:
        self._models = dict(models)
        self._places = {f"{model}.{name}": (model, name) for model, source in models.items() for name in source.tensors}
        self.files = [file for source in models.values() for file in source.files]
        self.tensors = {full: self._models[model].tensors[name] for full, (model, name) in self._places.items()}
        self.tied = {
            f"{model}.{alias}": f"{model}.{kept}" for model, one in models.items() for alias, kept in one.tied.items()
        }
        own = [f"{model}: {note}" for model, source in models.items() for note in source.notes]
        self.notes = [
            f"It holds several models, whose names come first in those of the tensors: {listed(models)}.",
            *own,
        ]

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor of one of the models."""
        model, own_name = self._places[name]
        return self._models[model].read(own_name)

    def samples(self, name: str) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
        """Yield parts of it as its model's format does."""
        model, own_name = self._places[name]
        return self._models[model].samples(own_name)

    def close(self) -> None:
        """Close all models."""
        for source in self._models.values():
            source.close()
