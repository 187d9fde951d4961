"""Record how many samples a rank reads, and digests that show whether two ranks read the same ones."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from . import process_state

MAX_LOADERS = 64
MAX_FIELDS = 6
FIELD_VALUES = 64
INDEX_TYPES = (int, str)
TOKEN_TYPES = ("torch.int64", "torch.int32")
MAP_STYLE = 0
"""Iterable data sets have no indices."""


def add_batch(state: process_state.ProcessState, iterator: Any, data: Any, waited_s: float) -> None:
    """Record a batch for which the training waited `waited_s`."""
    epoch = iterator._rankzero_epoch
    if epoch is not state.epoch:
        loader = epoch.loader if epoch is not None else None
        if loader is not state.loader:  # time in a validation loader does not count for the training
            state.loader, state.wait_s, state.samples, state.tokens = loader, 0.0, None, 0
            state.clock.disown_data(waited_s + state.start_wait_s)
        state.epoch = epoch
    state.wait_s += waited_s + state.start_wait_s
    state.start_wait_s = 0.0
    if epoch is None:
        return
    batch_size = epoch.loader.batch_size
    if batch_size is None:
        batch_size = _leading_dimension(data)
    if batch_size is not None:
        state.samples = (state.samples or 0) + batch_size
    if epoch.loader.reads_tokens is not False:
        tokens = _tokens(data)
        epoch.loader.reads_tokens = tokens > 0
        state.tokens += tokens
    if epoch.fields is None:
        epoch.first_step = state.step
        epoch.fields = []
        epoch.fields = digest_fields(data)


def add_index(state: process_state.ProcessState, iterator: Any, index: Any) -> None:
    """Record the sampler's next index, or a batch of them."""
    if "samples" in state.off:
        return
    if iterator._rankzero_source is not iterator._sampler_iter:
        iterator._rankzero_epoch = _begin_epoch(state, iterator)
        iterator._rankzero_source = iterator._sampler_iter
    iterator._rankzero_epoch.add(index if iterator._dataset_kind == MAP_STYLE else None)
    if iterator._rankzero_epoch.is_full:
        iterator._rankzero_noted = iterator._sampler_iter


def digest_indices(indices: list[Any]) -> dict[str, int]:
    """Return prefix length -> checksum, by which ranks are compared."""
    plain = [index if isinstance(index, INDEX_TYPES) else int(index) for index in indices]
    lengths = [length for length in process_state.DIGEST_LENGTHS if length <= len(plain)] or [len(plain)]
    return {str(length): crc32(repr(plain[:length]).encode()) for length in lengths if length}


def digest_fields(data: Any) -> list[list[Any]]:
    """Return [name, checksum, number of distinct values] of a batch's tensors, from a few values of each."""
    fields: list[list[Any]] = []
    for name, tensor in _tensors(data, "batch", 3):
        if len(fields) < MAX_FIELDS and tensor.device.type == "cpu":
            flat = tensor.detach().reshape(-1)
            values = flat[:: max(1, flat.numel() // FIELD_VALUES)][:FIELD_VALUES].tolist()
            fields.append([name, crc32(repr(values).encode()), len(set(map(repr, values)))])
    return fields


def _begin_epoch(state: process_state.ProcessState, iterator: Any) -> process_state.Epoch:
    loader = _loader(state, iterator)
    if loader.epoch is not None and loader.epoch.steps and not loader.epoch.is_reported:
        state.epochs.append(loader.epoch)
    loader.epoch = process_state.Epoch(loader, _distributed_sampler(iterator._index_sampler))
    return loader.epoch


def _loader(state: process_state.ProcessState, iterator: Any) -> process_state.Loader:
    sampler = iterator._index_sampler
    loader = state.loaders.get(id(sampler))
    if loader is not None and loader.sampler() is sampler:
        return loader
    if len(state.loaders) >= MAX_LOADERS:
        state.loaders.pop(next(iter(state.loaders)))
    batch_size = getattr(sampler, "batch_size", None)
    loader = process_state.Loader(
        sampler, batch_size if isinstance(batch_size, int) else None, _length(iterator._dataset)
    )
    state.loaders[id(sampler)] = loader
    return loader


def _distributed_sampler(sampler: Any) -> dict[str, Any]:
    """Return the settings of the sampler that divides an epoch among ranks; empty if there is none."""
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
        waiting += [sampler for sampler in inner if sampler is not None and len(waiting) < 6]
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


def _tokens(data: Any) -> int:
    """Return the size of the first integer tensor (samples, positions) of a batch, as texts have; 0 without one."""
    for _, tensor in _tensors(data, "batch", 3):
        if tensor.dim() == 2 and tensor.shape[1] > 1 and str(tensor.dtype) in TOKEN_TYPES:
            return int(tensor.numel())
    return 0


def _tensors(data: Any, name: str, depth: int) -> Any:
    """Yield (name, tensor) in a batch of tuples, lists and dictionaries, to a depth of `depth`."""
    if hasattr(data, "numel") and hasattr(data, "detach"):
        if data.numel():
            yield name, data
    elif depth and isinstance(data, dict):
        for key in list(data)[:MAX_FIELDS]:
            yield from _tensors(data[key], str(key)[:40], depth - 1)
    elif depth and isinstance(data, (tuple, list)):
        for number, item in enumerate(data[:MAX_FIELDS]):
            yield from _tensors(item, f"{name}[{number}]", depth - 1)
