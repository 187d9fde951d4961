"""Files that each rank wrote with torch.save, such as verl's `model_world_size_2_rank_0.pt`.

A DTensor says which part of the whole it is, so they are put together. How other parts belong together is known to
their framework alone: they are refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import ceil, prod
from pathlib import Path
from typing import Any

import torch

from ..mapped import Assembly, MappedSource, Sample, first_of, whole
from ..model_part import Keys, is_other, model_part
from ..names import listed, plain_names, renaming_notes
from ..sources import CheckpointRefused, TensorSource
from . import inert

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
except ImportError:  # torch 2.4
    from torch.distributed._tensor import DTensor, Replicate, Shard  # type: ignore[attr-defined]

NAME = re.compile(r"(?P<stem>.*?)[-_.]?(?:world_size_(?P<world_size>\d+)_)?rank[-_]?(?P<rank>\d+)\.(?:pt|pth|bin|ckpt)")
WEIGHTS = {".safetensors", ".pt", ".pth", ".bin", ".ckpt"}
REMEDY = (
    "Save with torch.distributed.checkpoint, which writes down what belongs where (.metadata), or let its framework "
    "merge it: verl by `python -m verl.model_merger merge`, FSDP's LOCAL_STATE_DICT (DINOv2) by loading it with as "
    "many ranks and saving FULL_STATE_DICT."
)

Place = tuple[slice, ...]


def recognize(path: Path) -> bool:
    """Whether it is a folder with a model's files of ranks, or one rank's file that names the world size."""
    if not path.is_dir():
        return (match := NAME.fullmatch(path.name)) is not None and match["world_size"] is not None
    sets = _sets(path)
    return any(len(files) > 1 for files in sets.values()) or (len(sets) == 1 and not _has_whole_model(path))


def open(path: Path) -> TensorSource:
    """Put together what the ranks' files hold. Raises CheckpointRefused, OSError."""
    files = _files(path) if path.is_dir() else {0: path}
    if not path.is_dir() and "world_size_1_" not in path.name:
        raise CheckpointRefused(
            f"{path.name} is one rank's part of a checkpoint: merge the folder with all ranks' files."
        )
    ranks = {rank: dict(_tensors(inert.load(file))) for rank, file in files.items()}
    part = model_part(dict.fromkeys(keys for values in ranks.values() for keys in values))
    names = plain_names(part.names.values())
    assemblies = {
        names[name]: _assembly(name, {rank: values[keys] for rank, values in ranks.items() if keys in values}, files)
        for keys, name in part.names.items()
    }
    return MappedSource("files of ranks", list(files.values()), assemblies, [*part.notes, *renaming_notes(names)])


# -- files -------------------------------------------------------------------------------------


def _sets(folder: Path) -> dict[str, dict[int, Path]]:
    """The model's files by what their names have in common, then by rank; no optimizer's or random states."""
    sets = defaultdict[str, dict[int, Path]](dict)
    for file in sorted(folder.iterdir()):
        match = NAME.fullmatch(file.name)
        if match and not is_other(match["stem"]) and "extra_state" not in match["stem"]:
            sets[match["stem"]][int(match["rank"])] = file
    return dict(sets)


def _has_whole_model(folder: Path) -> bool:
    """Whether a file beside those of ranks may be a model's."""
    others = [file for file in folder.iterdir() if file.suffix in WEIGHTS and not NAME.fullmatch(file.name)]
    return any(not is_other(file.stem) for file in others)


def _files(folder: Path) -> dict[int, Path]:
    """Return the one model's files by rank. Raises CheckpointRefused."""
    sets = _sets(folder)
    if len(sets) > 1:
        sets = {stem: files for stem, files in sets.items() if len(files) > 1}
    if len(sets) > 1:
        raise CheckpointRefused(
            f"{folder.name} has ranks' files of several models ({listed(sets)}): save each into its own folder."
        )
    (files,) = sets.values()
    match = NAME.fullmatch(files[min(files)].name)
    _require_all(files, int(match["world_size"] or 0) if match else 0)
    return dict(sorted(files.items()))


def _require_all(files: Mapping[int, Path], world_size: int) -> None:
    if missing := sorted(set(range(world_size)) - files.keys()):
        name = re.sub(r"\d+(?=\.\w+$)", str(missing[0]), files[min(files)].name)
        raise CheckpointRefused(
            f"{name} is missing: each of the {world_size} ranks' files has a part of the model. Merge a checkpoint to "
            "which all of them belong."
        )


# -- tensors -----------------------------------------------------------------------------------


def _tensors(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield the tensors of dictionaries inside each other, and objects of unknown classes, with the keys to them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _tensors(inner, (*keys, key))
    elif isinstance(value, torch.Tensor | inert.StandIn):
        yield keys, value


def _assembly(name: str, values: Mapping[int, Any], files: Mapping[int, Path]) -> Assembly:
    """Return how a tensor is put together from the ranks' values. Raises CheckpointRefused."""
    for value in values.values():
        if isinstance(value, inert.StandIn):
            raise CheckpointRefused(f"The ranks' files have parts of {name} as {type(value).__name__}. {REMEDY}")
    divided = {rank: value for rank, value in values.items() if isinstance(value, DTensor)}
    if not divided:
        return _alike(name, values, files)
    _require_all(files, max(int(value.device_mesh.mesh.max()) + 1 for value in divided.values()))
    parts = {_key(place): (place, local) for place, local in _places(name, divided)}
    example = next(iter(divided.values()))
    shape, dtype = tuple(example.shape), example.dtype
    if sum(local.numel() for _, local in parts.values()) != prod(shape):
        raise CheckpointRefused(
            f"The ranks' parts of {name} do not make up its shape {list(shape)}: they are of different saves."
        )

    def read() -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        for place, local in parts.values():
            tensor[place] = local
        return tensor

    def samples() -> Iterator[Sample]:
        for place, local in parts.values():
            yield from first_of([one.start for one in place], local)

    return Assembly(shape, dtype, read, samples)


def _alike(name: str, values: Mapping[int, torch.Tensor], files: Mapping[int, Path]) -> Assembly:
    """Return the tensor that all ranks saved as a whole, as with DDP. Raises CheckpointRefused for others."""
    first = values[min(values)]
    if values.keys() != files.keys() or not all(_is_equal(first, value) for value in values.values()):
        raise CheckpointRefused(
            f"The ranks' files have different values of {name}, and nothing says how they belong together. {REMEDY}"
        )
    return whole(first)


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether shape, type and all bytes are the same."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(*(tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in (one, other)))


def _places(name: str, divided: Mapping[int, DTensor]) -> Iterator[tuple[Place, torch.Tensor]]:
    """Yield where each rank's part is in the whole, and the part. Raises CheckpointRefused."""
    for rank, value in divided.items():
        place = _place(name, rank, value)
        with torch.no_grad():
            local = value.to_local()
        if tuple(local.shape) != tuple(one.stop - one.start for one in place):
            raise CheckpointRefused(f"Rank {rank}'s part of {name} has another shape than its placement says. {REMEDY}")
        yield place, local


def _place(name: str, rank: int, value: DTensor) -> Place:
    """Return which part a rank has: each dimension of the mesh cuts one of the tensor, as torch.chunk does."""
    place = [slice(0, size) for size in value.shape]
    at = (value.device_mesh.mesh == rank).nonzero().flatten().tolist()
    for placement, step, count in zip(value.placements, at, value.device_mesh.mesh.shape, strict=True):
        if type(placement) is Shard:
            one = place[placement.dim]
            share = ceil((one.stop - one.start) / count)
            place[placement.dim] = slice(
                min(one.start + step * share, one.stop), min(one.start + (step + 1) * share, one.stop)
            )
        elif not isinstance(placement, Replicate):
            raise CheckpointRefused(f"{name} is divided in a way that is not read here ({placement}). {REMEDY}")
    return tuple(place)


def _key(place: Place) -> tuple[tuple[int, int], ...]:
    """Return a place as a key: slices are none before Python 3.12."""
    return tuple((one.start, one.stop) for one in place)
