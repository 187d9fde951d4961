"""Which samples a rank reads, and how many: enough of them to tell whether two ranks read the same."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from . import seen

MAX_LOADERS = 64
MAX_FIELDS = 6
FIELD_VALUES = 64
INDEX_TYPES = (int, str)
MAP_STYLE = 0
"""Iterable data sets have no indices."""


def batch_came(now: seen.Seen, iterator: Any, data: Any, waited_s: float) -> None:
    """The training has its next batch, after waiting for it."""
    epoch = iterator.__dict__.get("_rankzero_epoch")
    if epoch is not now.epoch:
        loader = epoch.loader if epoch is not None else None
        if loader is not now.loader:  # what a validation loader took is not the training's
            now.loader, now.wait_s, now.samples_waiting = loader, 0.0, None
        now.epoch = epoch
    now.wait_s += waited_s + now.start_wait_s
    now.start_wait_s = 0.0
    if epoch is None:
        return
    batch_size = epoch.loader.batch_size
    if batch_size is None:
        batch_size = _leading_dimension(data)
    if batch_size is not None:
        now.samples_waiting = (now.samples_waiting or 0) + batch_size
    if epoch.fields is None:
        epoch.first_step = now.step
        epoch.fields = []
        epoch.fields = digest_fields(data)


def index_came(now: seen.Seen, iterator: Any, epoch: seen.Epoch | None, index: Any) -> None:
    """The sampler gave the next index, or a batch of them."""
    if "samples" in now.off:
        return
    if epoch is None or iterator._rankzero_source is not iterator._sampler_iter:
        epoch = _begin_epoch(now, iterator)
        iterator._rankzero_source = iterator._sampler_iter
        iterator._rankzero_epoch = epoch
    epoch.add(index if iterator._dataset_kind == MAP_STYLE else None)


def digest_indices(indices: list[Any]) -> dict[str, int]:
    """A checksum of each beginning that ranks are compared by."""
    plain = [index if isinstance(index, INDEX_TYPES) else int(index) for index in indices]
    lengths = [length for length in seen.DIGEST_LENGTHS if length <= len(plain)] or [len(plain)]
    return {str(length): crc32(repr(plain[:length]).encode()) for length in lengths if length}


def digest_fields(data: Any) -> list[list[Any]]:
    """(name, checksum, number of distinct values) of the tensors of a batch, by a few values of each."""
    found: list[list[Any]] = []
    for name, tensor in _tensors(data, "batch", 3):
        if len(found) < MAX_FIELDS and tensor.device.type == "cpu":
            flat = tensor.detach().reshape(-1)
            values = flat[:: max(1, flat.numel() // FIELD_VALUES)][:FIELD_VALUES].tolist()
            found.append([name, crc32(repr(values).encode()), len(set(map(repr, values)))])
    return found


def _begin_epoch(now: seen.Seen, iterator: Any) -> seen.Epoch:
    loader = _loader(now, iterator)
    if loader.epoch is not None and loader.epoch.steps and not loader.epoch.is_told:
        now.epochs.append(loader.epoch)
    loader.epoch = seen.Epoch(loader, _distributed_sampler(iterator._index_sampler))
    return loader.epoch


def _loader(now: seen.Seen, iterator: Any) -> seen.Loader:
    sampler = iterator._index_sampler
    known = now.loaders.get(id(sampler))
    if known is not None and known.sampler() is sampler:
        return known
    if len(now.loaders) >= MAX_LOADERS:
        now.loaders.pop(next(iter(now.loaders)))
    batch_size = getattr(sampler, "batch_size", None)
    loader = seen.Loader(
        sampler, batch_size if isinstance(batch_size, int) else None, _length(iterator._dataset)
    )
    now.loaders[id(sampler)] = loader
    return loader


def _distributed_sampler(sampler: Any) -> dict[str, Any]:
    """What a sampler that divides an epoch among ranks is set to; nothing when there is none."""
    waiting = [sampler]
    for candidate in waiting:
        if hasattr(candidate, "set_epoch") and hasattr(candidate, "num_replicas"):
            return {
                "type": type(candidate).__name__,
                "epoch": int(candidate.epoch),
                "shuffle": bool(getattr(candidate, "shuffle", False)),
                "replicas": int(candidate.num_replicas),
            }
        inner = [getattr(candidate, name, None) for name in ("sampler", "batch_sampler")]
        waiting += [each for each in inner if each is not None and len(waiting) < 6]
    return {}


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:
        return None


def _leading_dimension(data: Any) -> int | None:
    for _, tensor in _tensors(data, "batch", 3):
        return int(tensor.shape[0]) if tensor.dim() else None
    return None


def _tensors(data: Any, name: str, depth: int) -> Any:
    """The tensors in a batch of tuples, lists and dictionaries, with names."""
    if hasattr(data, "numel") and hasattr(data, "detach"):
        if data.numel():
            yield name, data
    elif depth and isinstance(data, dict):
        for key in list(data)[:MAX_FIELDS]:
            yield from _tensors(data[key], str(key)[:40], depth - 1)
    elif depth and isinstance(data, (tuple, list)):
        for number, each in enumerate(data[:MAX_FIELDS]):
            yield from _tensors(each, f"{name}[{number}]", depth - 1)
