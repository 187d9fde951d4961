"""Conversion of files written by torch.save: torch's weights-only loader reads them, torch or safetensors writes.

Tensors stay in the file, mapped into memory; only names and places are held.
"""

from __future__ import annotations

import errno
import mmap
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from worker.checkpoints.conversion import CannotConvert, PlannedConversion
from worker.checkpoints.names import prefix_in

STATE_DICT_NAMES = ("model", "state_dict", "model_state_dict", "model_state", "module", "net", "network")
"""Names that scripts give the model's state dict in a checkpoint, the most usual first."""
MOST_GROWTH = 2
"""Largest safetensors copy, as a multiple of the file: it repeats a storage for each tensor that shares it."""
MOST_NAMED = 8
_HEADER_BYTES = 256
"""Upper limit of one tensor's entry in a safetensors header, without its name."""


def without_prefix(source: Path, strip: bool = True) -> PlannedConversion | None:
    """The checkpoint as it was saved, with shorter names; None where no name has a prefix.

    Raises CannotConvert, OSError.
    """
    checkpoint = load(source)
    prefixes = [prefix for state in _state_dicts(checkpoint) if (prefix := _remove_prefix(state))]
    if not prefixes:
        return None
    note = f"Names lost their prefix {prefixes[0]}"
    return PlannedConversion(source.stat().st_size, partial(_save, checkpoint, note))


def as_safetensors(source: Path, strip: bool) -> PlannedConversion:
    """The model's state dict alone; the notes name what is in it and what is not.

    Raises CannotConvert, OSError.
    """
    checkpoint = load(source)
    place, state = state_dict_of(checkpoint)
    model = {name: value for name, value in state.items() if _is_tensor(name, value)}
    omitted = [_name(key) for key in checkpoint if key != place] if place is not None else []
    omitted += [_name(key) for key in state if key not in model]
    prefix = _remove_prefix(model) if strip else ""
    if "__metadata__" in model:
        raise CannotConvert(f"{prefix}__metadata__ is a name that safetensors reserves.")
    notes = [*_contents(place, len(model), prefix, strip), *_omissions(omitted), *_shared(model)]
    size_bytes = _require_modest(model, source) + sum(len(name) + _HEADER_BYTES for name in model)
    return PlannedConversion(size_bytes, partial(_write_safetensors, model, notes))


def _save(checkpoint: Any, note: str, target: Path) -> list[str]:
    torch.save(checkpoint, target)
    return [note]


# -- reading -----------------------------------------------------------------------------------


def load(source: Path) -> Any:
    """Load a file of torch.save; its tensors are mapped from the file where its format allows it.

    Raises CannotConvert, OSError, MemoryError, RecursionError.
    """
    if torch.__version__ < "2.6":
        raise CannotConvert(
            f"The server has torch {torch.__version__}, and checkpoints are converted by torch 2.6 or newer: "
            "upgrade it there, or download the checkpoint as it was saved."
        )
    try:
        is_zip = zipfile.is_zipfile(source)
        if is_zip:
            _require_little_endian(source)
        torch.serialization.set_default_mmap_options(mmap.MAP_SHARED)  # does not count as memory
        return torch.load(source, weights_only=True, mmap=is_zip, map_location="cpu")
    except (CannotConvert, MemoryError, RecursionError):
        raise
    except Exception as error:  # torch raises many kinds
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # this one: a place before the file's beginning
            raise
        raise CannotConvert(
            "It cannot be converted, because torch's weights-only loader does not read it: it is damaged, too large, "
            f"or holds more than tensors and plain values{_others(source)}; download it as it was saved."
        ) from error


def _require_little_endian(source: Path) -> None:
    """Raises CannotConvert for other files, whose bytes torch would swap in the file itself; BadZipFile."""
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            if member.filename.endswith("/byteorder"):
                del member.CRC  # torch may have omitted it
                if archive.read(member) == b"big":
                    raise CannotConvert("It was written on a big-endian machine: download it as it was saved.")


def _others(source: Path) -> str:
    """The classes and functions in the file that the loader does not have, where it can list them."""
    with suppress(Exception):  # a damaged file, or one of another format
        if names := torch.serialization.get_unsafe_globals_in_checkpoint(source):
            return f" ({_listed(sorted(names))})"
    return ""


# -- state dicts -------------------------------------------------------------------------------


def state_dict_of(checkpoint: Any) -> tuple[str | None, Mapping[Any, Any]]:
    """The model's name in the checkpoint, None where it is all of it; and its names and tensors.

    Raises CannotConvert.
    """
    if not isinstance(checkpoint, dict):
        raise CannotConvert(
            "It does not contain a dictionary (perhaps a whole module): save model.state_dict() instead."
        )
    inner = {name: value for name, value in checkpoint.items() if isinstance(name, str) and _tensor_names(value)}
    usual = [name for name in STATE_DICT_NAMES if name in inner]
    if not usual and _tensor_names(checkpoint):
        return None, checkpoint
    names = usual or list(inner)
    if not names:
        raise CannotConvert("It contains no state dict, that is, no dictionary of names and tensors.")
    if not usual and len(names) > 1:
        raise CannotConvert(
            f"It contains several state dicts ({_listed(names)}), and none is called "
            f"{', '.join(STATE_DICT_NAMES[:2])} or {STATE_DICT_NAMES[2]}."
        )
    return names[0], inner[names[0]]


def _state_dicts(checkpoint: Any) -> Iterator[dict[Any, Any]]:
    """Dictionaries with tensors by name, wherever they are in a checkpoint."""
    visited, waiting = set(), [checkpoint]
    while waiting:
        value = waiting.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, dict):
            waiting += reversed(value.values())
            if _tensor_names(value):
                yield value
        elif isinstance(value, list | tuple):
            waiting += reversed(value)


def _tensor_names(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [name for name, tensor in value.items() if isinstance(name, str) and isinstance(tensor, torch.Tensor)]


def _remove_prefix(state: dict[Any, Any]) -> str:
    """Shorten the names in place; return the prefix that they had."""
    prefix = prefix_in(_tensor_names(state))
    if all(isinstance(name, str) for name in state):
        for wrapper in re.findall(r"[^.]+\.", prefix):
            consume_prefix_in_state_dict_if_present(state, wrapper)
        return prefix
    return ""


# -- safetensors -------------------------------------------------------------------------------


def _is_tensor(name: object, value: Any) -> bool:
    """Whether it is a named tensor. Raises CannotConvert for one that safetensors cannot hold."""
    if not (isinstance(name, str) and isinstance(value, torch.Tensor)):
        return False
    if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
        raise CannotConvert(f"{name} is not a plain tensor (but sparse or quantized): download it as it was saved.")
    return True


def _require_modest(model: Mapping[str, torch.Tensor], source: Path) -> int:
    """Bytes of all tensors, each with its own storage. Raises CannotConvert."""
    size_bytes = sum(tensor.nbytes for tensor in model.values())
    if size_bytes > MOST_GROWTH * source.stat().st_size + 1024 * 1024:
        raise CannotConvert(
            "Its tensors share so much storage that the safetensors file would be more than twice as large."
        )
    for name, tensor in model.items():
        _spec(name, tensor)
    return size_bytes


def _write_safetensors(model: Mapping[str, torch.Tensor], notes: list[str], target: Path) -> list[str]:
    """Write the file; `safetensors.torch.save_file` would refuse tensors that share a storage."""
    packed = {name: tensor.resolve_conj().resolve_neg().contiguous() for name, tensor in model.items()}
    specs = {name: _spec(name, tensor) for name, tensor in packed.items()}
    safetensors.serialize_file(specs, target, metadata={"format": "pt"})
    return notes


def _spec(name: str, tensor: torch.Tensor) -> safetensors.TensorSpec:
    try:
        return safetensors.TensorSpec(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tensor.shape,
            data_ptr=tensor.data_ptr(),
            data_len=tensor.nbytes,
        )
    except safetensors.SafetensorError as error:
        raise CannotConvert(
            f"{name} has a data type that safetensors does not support: download it as it was saved."
        ) from error


# -- notes for people --------------------------------------------------------------------------


def _contents(place: str | None, count: int, prefix: str, strip: bool) -> list[str]:
    where = "its top level" if place is None else repr(place)
    words = [f"{count} tensors of {where} are in it" if count != 1 else f"1 tensor of {where} is in it"]
    if prefix:
        words.append(f"the names lost the prefix {prefix}")
    elif strip:
        words.append("the names had no prefix")
    return [", ".join(words) + ("" if prefix else ".")]


def _omissions(names: Sequence[str]) -> list[str]:
    return [f"Left out, because safetensors holds only tensors: {_listed(names)}."] if names else []


def _shared(model: Mapping[str, torch.Tensor]) -> list[str]:
    places = {name: (tensor.data_ptr(), tensor.nbytes) for name, tensor in model.items() if tensor.nbytes}
    counts = Counter(places.values())
    names = [name for name, place in places.items() if counts[place] > 1]
    return [f"These share one storage and are written separately: {_listed(names)}."] if names else []


def _name(key: object) -> str:
    return key if isinstance(key, str) else "something without a name"


def _listed(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 60 else f"{name[:59]}…" for name in names[:MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
