"""The files of a save of DeepSpeed: which belong to it, which rank wrote each, and which are missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..sources import CheckpointRefused
from . import inert

STATES = re.compile(
    r"(?:(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_)?mp_rank_(?P<model_rank>\d+)_?(?P<kind>model|optim)_states\.pt"
)
OTHER_STATES = re.compile(r"layer_.*_states\.pt|expert_.*_states\.pt|expp_rank_.*_states\.pt")
"""Files of pipelines and of mixtures of experts."""
CONVERT = (
    "Convert it with DeepSpeed's own `python -m deepspeed.checkpoint.ds_to_universal`, or save the whole model from "
    "the script."
)


@dataclass(frozen=True)
class ZeroSave:
    """The loaded files of one save."""

    name: str
    files: Sequence[Path]
    models: Sequence[Mapping[str, Any]]
    """What the model files hold: of each rank with ZeRO 3, otherwise of rank 0 alone."""
    partitions: Sequence[Mapping[str, Any]]
    """What each rank's optimizer file holds."""

    @property
    def stage(self) -> int:
        """The stage of ZeRO, 0 without partitions; the optimizer for bf16 divides as stage 1 does and names none."""
        return int(self.partitions[0].get("zero_stage", 1)) if self.partitions else 0

    @property
    def model(self) -> Mapping[str, Any]:
        """The content of rank 0's model file."""
        return self.models[0]

    @property
    def shapes(self) -> list[dict[str, tuple[int, ...]]]:
        """The shapes of the trained parameters by name, for each group of the optimizer, in its order."""
        return [{name: tuple(shape) for name, shape in group.items()} for group in self.model.get("param_shapes") or ()]

    def groups(self) -> list[list[torch.Tensor]]:
        """Return each rank's flat fp32 values, a tensor for each group. Raises CheckpointRefused."""
        key = "fp32_flat_groups" if self.stage == 3 else "single_partition_of_fp32_groups"
        if any(key not in partition for partition in self.partitions):
            raise CheckpointRefused(f"The optimizer's files of {self.name} hold no fp32 weights ({key}). {CONVERT}")
        return [list(partition[key]) for partition in self.partitions]


def folders_of_saves(path: Path) -> list[Path]:
    """Return the folders of saves by name: the folder itself, or those directly in it. Raises OSError."""
    if not path.is_dir():
        return []
    return [folder for folder in (path, *sorted(path.iterdir())) if folder.is_dir() and _has_states(folder)]


def load_save(folder: Path) -> ZeroSave:
    """Load the files of a save. Raises CheckpointRefused, OSError."""
    models, optimizers = _by_rank(folder, "model"), _by_rank(folder, "optim")
    _require_one_model(folder)
    if 0 not in models:
        raise CheckpointRefused(
            f"{folder.name} has no model file of rank 0 (mp_rank_00_model_states.pt): it is not whole."
        )
    partitions = [_loaded(path, "optimizer_state_dict")["optimizer_state_dict"] for path in optimizers.values()]
    is_stage_3 = any("zero_pp_rank" in path.name for path in models.values())
    if is_stage_3 and not partitions:
        raise CheckpointRefused(f"{folder.name} has no *_optim_states.pt: with ZeRO 3, the weights are in these files.")
    for files in [optimizers, models][: 1 + is_stage_3] if partitions else []:
        _require_all(files, partitions[0])
    return ZeroSave(
        folder.name,
        [*models.values(), *optimizers.values()],
        [_loaded(path, "module") for path in models.values()],
        partitions,
    )


def _has_states(folder: Path) -> bool:
    return any(STATES.fullmatch(file.name) or OTHER_STATES.fullmatch(file.name) for file in folder.iterdir())


def _by_rank(folder: Path, kind: str) -> dict[int, Path]:
    matches = [(match, file) for file in folder.iterdir() if (match := STATES.fullmatch(file.name))]
    of_kind = {int(match["rank"] or 0): file for match, file in matches if match["kind"] == kind}
    return dict(sorted(of_kind.items()))


def _require_one_model(folder: Path) -> None:
    """Raises CheckpointRefused where the model itself is divided: only its framework knows how."""
    names = [file.name for file in folder.iterdir()]
    if any(OTHER_STATES.fullmatch(name) for name in names):
        raise CheckpointRefused(
            f"{folder.name} is a save of DeepSpeed with a pipeline or experts in files of their own. {CONVERT}"
        )
    model_ranks = {match["model_rank"] for name in names if (match := STATES.fullmatch(name))}
    if len(model_ranks) > 1:
        count = len(model_ranks)
        raise CheckpointRefused(
            f"{folder.name} is a save of DeepSpeed whose model is divided over {count} ranks. {CONVERT}"
        )


def _require_all(files: Mapping[int, Path], partition: Mapping[str, Any]) -> None:
    """Raises CheckpointRefused where ranks' files are missing, or files of a larger save are left."""
    counts = partition.get("partition_count", 0)
    count = max(counts) if isinstance(counts, list | tuple) else int(counts)
    example = next(iter(files.values())).name
    if missing := sorted(set(range(count)) - files.keys()):
        name = re.sub(r"(?<=pp_rank_)\d+", str(missing[0]), example)
        more = f" and {len(missing) - 1} more are missing" if len(missing) > 1 else " is missing"
        raise CheckpointRefused(
            f"{name}{more}: the weights are divided over {count} ranks, and each rank's file is needed. Merge a "
            "checkpoint to which every rank's files belong."
        )
    if len(files) > count:
        raise CheckpointRefused(
            f"{len(files)} ranks' files like {example} lie in one folder, but the weights are divided over {count} "
            "ranks: some are left of another save. Save into an empty folder."
        )


def _loaded(path: Path, key: str) -> Mapping[str, Any]:
    values = inert.load(path)
    if not isinstance(values, dict) or not isinstance(values.get(key), dict):
        raise CheckpointRefused(f"{path.name} is not as DeepSpeed writes it: it has no {key}. {CONVERT}")
    return values
