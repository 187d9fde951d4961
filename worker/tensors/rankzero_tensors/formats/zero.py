"""DeepSpeed ZeRO 1 to 3: folders like `global_step30`, where each rank has a partition of the optimizer's values.

The weights are the optimizer's fp32 values, as with DeepSpeed's own `zero_to_fp32`. What it does not train (frozen
parameters, buffers) comes from the model's files, and keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil, prod
from pathlib import Path
from typing import Any

import torch

from ..mapped import Assembly, MappedSource, flat, whole
from ..names import plain_names, renaming_notes
from ..sources import CheckpointRefused, TensorSource
from .zero_files import CONVERT, ZeroSave, folders_of_saves, load_save

Parts = Mapping[str, Sequence[torch.Tensor]]
MIXED = f"the files are of different saves, or the optimizer's values lie elsewhere (NVMe). {CONVERT}"


def recognize(path: Path) -> bool:
    """Whether it is a save of DeepSpeed, or a folder that contains one."""
    return bool(folders_of_saves(path))


def open(path: Path) -> TensorSource:
    """Open the save, or the one that `latest` names. Raises CheckpointRefused, OSError."""
    save = load_save(_chosen(path))
    if save.model.get("ds_autoep_layers") or save.model.get("autoep_layers"):
        raise CheckpointRefused(f"{save.name} is a save of DeepSpeed with experts divided over ranks. {CONVERT}")
    trained, others, aliases = _trained(save), _others(save), _aliases(save)
    assemblies = trained | others
    assemblies |= {alias: assemblies[kept] for alias, kept in aliases.items() if kept in assemblies}
    names = plain_names(sorted(assemblies, key=_places(save)))
    tied = {names[alias]: names[kept] for alias, kept in aliases.items() if kept in assemblies}
    notes = [*_notes(save, len(trained)), *renaming_notes(names)]
    return MappedSource(
        f"DeepSpeed ZeRO {save.stage}" if save.stage else "DeepSpeed",
        save.files,
        {plain: assemblies[name] for name, plain in names.items()},
        notes,
        tied,
    )


def _chosen(path: Path) -> Path:
    saves, mark = folders_of_saves(path), path / "latest"
    latest = mark.read_text().strip() if mark.is_file() else ""
    for save in saves:
        if save in (path, path / latest) or len(saves) == 1:
            return save
    names = ", ".join(save.name for save in saves)
    raise CheckpointRefused(
        f"{path.name} has several saves of DeepSpeed ({names}), and its file `latest` names none of them."
    )


def _places(save: ZeroSave) -> Callable[[str], int]:
    """Return the key that sorts names as the model has them."""
    places = {name: place for place, name in enumerate(save.model["module"])}
    return lambda name: places.get(name, len(places))


def _notes(save: ZeroSave, count: int) -> list[str]:
    dtypes = {str(value.dtype).removeprefix("torch.") for value in save.model["module"].values() if _is_tensor(value)}
    low = " and ".join(sorted(dtypes & {"bfloat16", "float16"}))
    if save.stage:
        return [f"{count} weights are the optimizer's own fp32 values{f', not the {low} of the model' if low else ''}."]
    if save.shapes:
        return [f"The optimizer's files are missing: the weights are those of the model{f' ({low})' if low else ''}."]
    return []


# -- trained parameters ------------------------------------------------------------------------


def _trained(save: ZeroSave) -> dict[str, Assembly]:
    """The parameters that the optimizer has, from its partitions."""
    shapes = _all_shapes(save) if save.stage else {}
    parts = _parts(save) if save.stage else {}
    for name, shape in shapes.items():
        if not _is_covered(save, parts.get(name, ()), prod(shape)):
            raise CheckpointRefused(f"The partitions in {save.name} do not hold all of {name}: {MIXED}")
    return {name: flat(parts[name] or [torch.empty(0)], shape) for name, shape in shapes.items()}


def _is_covered(save: ZeroSave, parts: Sequence[torch.Tensor], count: int) -> bool:
    held = sum(part.numel() for part in parts)
    return held - count in range(len(save.partitions)) if save.stage == 3 else held == count


def _all_shapes(save: ZeroSave) -> dict[str, tuple[int, ...]]:
    return {name: shape for group in save.shapes for name, shape in group.items()}


def _parts(save: ZeroSave) -> Parts:
    """Each parameter's flat parts, in their order."""
    if save.stage == 3:
        return _shares(save)
    if all(partition.get("param_slice_mappings") for partition in save.partitions):
        return _mapped_slices(save)
    return _consecutive(save)


def _mapped_slices(save: ZeroSave) -> Parts:
    """Stages 1 and 2: each rank's file says where its part of each parameter is in its partition."""
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in _all_shapes(save)}
    for groups, partition in zip(save.groups(), save.partitions, strict=True):
        for values, slices in zip(groups, partition["param_slice_mappings"], strict=True):
            for name, place in slices.items():
                parts[name].append(values[place.start : place.start + place.numel])
    return parts


def _consecutive(save: ZeroSave) -> Parts:
    """Stages 1 and 2 of older versions: a group's parameters one after the other, cut among the ranks, then padding."""
    parts = {}
    for shapes, partitions in zip(save.shapes, zip(*save.groups(), strict=True), strict=True):
        sizes = list(map(prod, shapes.values()))
        _require_used_up(save, partitions, sum(sizes), padding=2 * len(partitions))
        for name, size, end in zip(shapes, sizes, accumulate(sizes), strict=True):
            parts[name] = list(_span(partitions, end - size, end))
    return parts


def _shares(save: ZeroSave) -> Parts:
    """Stage 3: each parameter is cut evenly among the ranks, and padded; a rank's shares follow each other."""
    shapes, ranks = _all_shapes(save), save.groups()
    shares = [ceil(prod(shape) / len(ranks)) for shape in shapes.values()]
    for groups in ranks:
        _require_used_up(save, groups, sum(shares))
    return {
        name: [part for groups in ranks for part in _span(groups, end - share, end)]
        for name, share, end in zip(shapes, shares, accumulate(shares), strict=True)
    }


def _require_used_up(save: ZeroSave, flats: Sequence[torch.Tensor], count: int, padding: int = 1) -> None:
    """Raises CheckpointRefused where the flat tensors hold more or fewer values than the parameters have."""
    held = sum(values.numel() for values in flats)
    if held - count not in range(padding):
        raise CheckpointRefused(
            f"The partitions in {save.name} hold {held:,} values, the parameters have {count:,}: {MIXED}"
        )


def _span(flats: Sequence[torch.Tensor], start: int, end: int) -> Iterator[torch.Tensor]:
    """Yield what lies between two places of flat tensors that follow each other."""
    begin = 0
    for values in flats:
        if (part := values[max(start - begin, 0) : max(end - begin, 0)]).numel():
            yield part
        begin += values.numel()


# -- all others --------------------------------------------------------------------------------


def _aliases(save: ZeroSave) -> Mapping[str, str]:
    """Further names of parameters, such as those of tied embeddings."""
    shared = save.model.get("shared_params") or {}
    return {alias: kept for alias, kept in shared.items() if save.stage == 3 or _is_alike(save, alias, kept)}


def _is_alike(save: ZeroSave, alias: str, kept: str) -> bool:
    """Whether both have one shape: DeepSpeed compares addresses, and empty tensors have the same."""
    module = save.model["module"]
    return alias in module and kept in module and module[alias].shape == module[kept].shape


def _others(save: ZeroSave) -> dict[str, Assembly]:
    """Buffers and frozen parameters, and without partitions all parameters."""
    module = {name: value for name, value in save.model["module"].items() if _is_tensor(value)}
    if save.stage == 3:
        buffers = {name: whole(module[name]) for name in save.model.get("buffer_names") or () if name in module}
        return buffers | _frozen(save)
    elsewhere = {*_all_shapes(save), *_aliases(save)} if save.stage else set()
    return {name: whole(value) for name, value in module.items() if name not in elsewhere}


def _frozen(save: ZeroSave) -> dict[str, Assembly]:
    """Stage 3: frozen parameters are cut among the ranks as the trained ones, in the model's files."""
    shapes: Mapping[str, Any] = save.model.get("frozen_param_shapes") or {}
    return {
        name: flat([model["frozen_param_fragments"][name].view(-1) for model in save.models], tuple(shape))
        for name, shape in shapes.items()
    }


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
