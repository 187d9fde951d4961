"""Saves of DeepSpeed written by hand, as ZeRO divides a model over ranks; DeepSpeed itself is not needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

Group = Mapping[str, torch.Tensor]


@dataclass
class ZeroSave:
    """A model, and how it is saved."""

    groups: Sequence[Group]
    """The trained parameters of each group of the optimizer, in fp32."""
    stage: int = 2
    world_size: int = 2
    model_dtype: torch.dtype = torch.bfloat16
    buffers: Group = field(default_factory=dict)
    frozen: Group = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    has_places: bool = True
    """Whether the optimizer's files say where each parameter lies, as since DeepSpeed 0.8 with ZeRO 1 and 2."""
    client_state: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Write all files; return the folder."""
        folder.mkdir(parents=True)
        with framework_classes() as classes:
            for rank in range(self.world_size):
                name = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
                torch.save({"optimizer_state_dict": self._partition(rank, classes)}, folder / name)
            for rank in range(self.world_size if self.stage == 3 else 1):
                prefix = f"zero_pp_rank_{rank}_" if self.stage == 3 else ""
                torch.save(self._model(rank), folder / f"{prefix}mp_rank_00_model_states.pt")
        return folder

    def _model(self, rank: int) -> dict[str, Any]:
        trained = {name: value.to(self.model_dtype) for group in self.groups for name, value in group.items()}
        parameters = trained | self.frozen
        parameters |= {alias: parameters[kept] for alias, kept in self.shared.items()}
        if self.stage == 3:
            parameters = {name: value.new_empty(0) for name, value in parameters.items()}
        return {
            "module": parameters | self.buffers,
            "buffer_names": list(self.buffers),
            "param_shapes": [{name: value.shape for name, value in group.items()} for group in self.groups],
            "frozen_param_shapes": {name: value.shape for name, value in self.frozen.items()},
            "frozen_param_fragments": {name: self._share(value, rank) for name, value in self.frozen.items()},
            "shared_params": dict(self.shared),
            "ds_version": "0.19.8",
            **self.client_state,
        }

    def _partition(self, rank: int, classes: Classes) -> dict[str, Any]:
        common = {
            "zero_stage": classes.stage(self.stage),
            "loss_scaler": classes.loss_scaler(),
            "partition_count": self.world_size if self.stage == 3 else [self.world_size] * len(self.groups),
        }
        if self.stage == 3:
            shares = [torch.cat([self._share(value, rank) for value in group.values()]) for group in self.groups]
            return common | {"fp32_flat_groups": shares}
        cuts = [self._cut(group, rank) for group in self.groups]
        places = [{name: classes.place(*place) for name, place in cut.items()} for _, cut in cuts]
        own = {"param_slice_mappings": places} if self.has_places else {}
        return common | own | {"single_partition_of_fp32_groups": [values for values, _ in cuts]}

    def _share(self, value: torch.Tensor, rank: int) -> torch.Tensor:
        """With ZeRO 3 each parameter is cut evenly, and padded for it."""
        if self.stage < 3:
            return value
        size = ceil(value.numel() / self.world_size)
        padded = torch.cat([value.flatten(), value.new_full((size * self.world_size - value.numel(),), 7)])
        return padded[rank * size : (rank + 1) * size].clone()

    def _cut(self, group: Group, rank: int) -> tuple[torch.Tensor, dict[str, tuple[int, int]]]:
        """With ZeRO 1 and 2 a group is cut evenly; its own padding is not saved. Also where each parameter lies."""
        values = torch.cat([value.flatten() for value in group.values()])
        size = ceil(len(values) / (2 * self.world_size)) * 2
        begin, places, at = rank * size, {}, 0
        for name, value in group.items():
            start, end = max(at, begin), min(at + value.numel(), begin + size)
            if start < end:
                places[name] = (start - begin, end - start)
            at += value.numel()
        return values[begin : begin + size].clone(), places


@dataclass(frozen=True)
class Classes:
    """DeepSpeed's classes that its files contain objects of."""

    stage: type[Enum]
    fragment: type
    loss_scaler: type

    def place(self, start: int, count: int) -> object:
        """Return where a parameter lies in a partition."""
        place = self.fragment()
        place.__dict__.update(start=start, numel=count)
        return place


@contextmanager
def framework_classes() -> Iterator[Classes]:
    """Let objects of these classes be pickled; afterwards nothing of them can be imported."""
    classes = Classes(
        Enum("ZeroStageEnum", {f"stage_{stage}": stage for stage in range(4)}, module="deepspeed.runtime.zero.config"),
        type("fragment_address", (), {"__module__": "deepspeed.utils.tensor_fragment"}),
        type("LossScaler", (), {"__module__": "deepspeed.runtime.fp16.loss_scaler"}),
    )
    with importable(classes.stage, classes.fragment, classes.loss_scaler):
        yield classes


@contextmanager
def importable(*classes: type) -> Iterator[None]:
    """Let classes be found by their modules' names."""
    names = [one.__module__.split(".") for one in classes]
    modules = {name: ModuleType(name) for parts in names for name in accumulate(parts, "{}.{}".format)}
    for one in classes:
        setattr(modules[one.__module__], one.__name__, one)
    with patch.dict(sys.modules, modules):
        yield
