"""The state dict of a torch file as safetensors: tensors are copied by offset, nothing is unpickled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any

from worker.checkpoints.keys import prefix_in, tensors
from worker.checkpoints.layout import Region, TorchFile
from worker.checkpoints.pickle_reader import Call, Description, Global, Stored, Text, is_tensor
from worker.checkpoints.pickle_reader import Mapping as Described
from worker.checkpoints.pieces import CannotRewrite, Piece, Rewriting, Strided

STATE_DICT_NAMES = ("model", "state_dict", "model_state_dict", "model_state", "module", "net", "network")
"""What training scripts call it, the most usual first."""
MOST_GROWTH = 2
"""Tensors that share a storage are written each for itself, but not endlessly often."""
MOST_NAMED = 8

_TYPES = {
    "Double": ("F64", 8),
    "Float": ("F32", 4),
    "Half": ("F16", 2),
    "BFloat16": ("BF16", 2),
    "Long": ("I64", 8),
    "Int": ("I32", 4),
    "Short": ("I16", 2),
    "Char": ("I8", 1),
    "Byte": ("U8", 1),
    "Bool": ("BOOL", 1),
    "uint16": ("U16", 2),
    "uint32": ("U32", 4),
    "uint64": ("U64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
}
"""By the name of the storage's class, or of the type itself where the storage has none."""


@dataclass(frozen=True)
class _Tensor:
    name: str
    type: str
    item_bytes: int
    shape: tuple[int, ...]
    piece: Region | Strided


def as_safetensors(source: TorchFile, *, strip: bool) -> Rewriting:
    """Raises CannotRewrite; the notes say what is in it and what is not."""
    if not source.little_endian:
        raise CannotRewrite("It was written on a big-endian machine: download it as it was saved.")
    place, model = state_dict_of(source.description)
    prefix = prefix_in(tensors(model)) if strip else ""
    calls, others = _sorted_out(model)
    if clash := next((name for name in calls if name.removeprefix(prefix) == "__metadata__"), None):
        raise CannotRewrite(f"{clash} is a name that safetensors keeps for itself.")
    found = [_tensor(name, name.removeprefix(prefix), call, source) for name, call in calls.items()]
    found.sort(key=lambda tensor: -tensor.item_bytes)  # so that each begins at a multiple of its type's size
    pieces: list[Piece] = [_header(found), *(tensor.piece for tensor in found)]
    notes = [*_told_names(place, len(found), prefix, strip), *_told_missing(source, place, model, others)]
    rewriting = Rewriting(pieces, [*notes, *_told_shared(found)])
    if rewriting.size_bytes > MOST_GROWTH * source.whole.size + 1024 * 1024:
        raise CannotRewrite(
            "Its tensors share so much storage that the safetensors file would be more than twice as large."
        )
    return rewriting


def state_dict_of(described: Description) -> tuple[str | None, Described]:
    """The model's names and tensors, and what they are called in the checkpoint: None where they are all of it."""
    root = described.root
    if not isinstance(root, Described):
        raise CannotRewrite(
            "What was saved is no dictionary (a whole module, perhaps): save model.state_dict() instead."
        )
    inner = {
        key.value: value
        for key, value in root.entries
        if isinstance(key, Text) and isinstance(value, Described) and tensors(value)
    }
    usual = [name for name in STATE_DICT_NAMES if name in inner]
    if not usual and tensors(root):
        return None, root
    names = usual or list(inner)
    if not names:
        raise CannotRewrite("There is no state dict in it: no dictionary of names and tensors.")
    if not usual and len(names) > 1:
        raise CannotRewrite(
            f"It holds several state dicts ({_listed(names)}), and none is called "
            f"{', '.join(STATE_DICT_NAMES[:2])} or {STATE_DICT_NAMES[2]}."
        )
    return names[0], inner[names[0]]


def _sorted_out(model: Described) -> tuple[dict[str, Call], list[str]]:
    """Tensors by name, and the names of what is none. A tensor of a kind of its own must not get lost."""
    calls, others = tensors(model), []
    for key, value in model.entries:
        if isinstance(value, Call) and not is_tensor(value) and _is_of_torch(value):
            raise CannotRewrite(
                f"{_name(key)} is no plain tensor (sparse, quantized or a class of its own): "
                "download it as it was saved."
            )
        if not is_tensor(value):
            others.append(_name(key))
    return calls, others


def _is_of_torch(call: Call) -> bool:
    name = call.function.name if isinstance(call.function, Global) else ""
    return name.startswith(("torch._utils _rebuild", "torch._tensor _rebuild"))


def _name(key: object) -> str:
    return key.value if isinstance(key, Text) else "something without a name"


# -- one tensor --------------------------------------------------------------------------------


def _tensor(saved_as: str, name: str, call: Call, source: TorchFile) -> _Tensor:
    """From the arguments that `torch._utils._rebuild_tensor_v2` would get."""
    try:
        stored, offset, shape, strides, type_name = _arguments(call)
        kind, item_bytes = _TYPES[type_name]
        storage = source.storages[stored]
        if not all(type(number) is int and number >= 0 for number in (offset, *shape, *strides)):
            raise TypeError
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise CannotRewrite(
            f"{saved_as} is no tensor of a kind that safetensors has: download it as it was saved."
        ) from error
    size, begins = prod(shape) * item_bytes, offset * item_bytes
    if _is_contiguous(shape, strides):
        return _Tensor(name, kind, item_bytes, shape, storage.part(begins, size))
    rest = storage.part(begins, storage.size - begins)
    return _Tensor(name, kind, item_bytes, shape, Strided(rest, item_bytes, shape, strides))


def _arguments(call: Call) -> tuple[str, int, tuple[int, ...], tuple[int, ...], str]:
    """(storage's key, offset, shape, strides, type); sizes count elements."""
    function, arguments = call.function.name, call.arguments
    if function.startswith("torch._utils _rebuild_parameter"):
        return _arguments_of_tensor(arguments[0])
    return _arguments_of_tensor(Call(call.function, arguments))


def _arguments_of_tensor(call: Call) -> tuple[str, int, tuple[int, ...], tuple[int, ...], str]:
    function, (stored, offset, shape, strides, *more) = call.function.name, call.arguments
    if not isinstance(stored, Stored) or len(shape) != len(strides):
        raise TypeError("not of a storage")
    _, kind, key, _, _, *views = stored.reference
    if any(isinstance(view, tuple) for view in views):
        raise TypeError("a view of a storage")
    type_name = kind.name.removeprefix("torch ").removesuffix("Storage")
    if function.endswith("_v3"):
        type_name, more = more[2].name.removeprefix("torch "), more[3:]
    else:
        more = more[2:]
    if more and isinstance(more[0], Described) and more[0].entries:
        raise TypeError("conjugated or negated")
    return key.value, offset, tuple(shape), tuple(strides), type_name


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    count = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != count:
            return 0 in shape
        count *= length
    return True


def _header(found: Iterable[_Tensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    known = list(found)
    ends = accumulate((tensor.piece.size for tensor in known), initial=0)
    for tensor, offsets in zip(known, pairwise(ends), strict=True):
        header[tensor.name] = {"dtype": tensor.type, "shape": tensor.shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


# -- what a person should know -----------------------------------------------------------------


def _told_names(place: str | None, count: int, prefix: str, strip: bool) -> list[str]:
    where = "its top level" if place is None else repr(place)
    told = [f"{count} tensors of {where} are in it" if count != 1 else f"1 tensor of {where} is in it"]
    if prefix:
        told.append(f"the names lost the prefix {prefix}")
    elif strip:
        told.append("the names had no prefix")
    return [", ".join(told) + ("" if prefix else ".")]


def _told_missing(source: TorchFile, place: str | None, model: Described, others: list[str]) -> list[str]:
    root = source.description.root
    beside = [_name(key) for key, _ in root.entries if _name(key) != place] if place is not None else []
    missing = [*beside, *others]
    return [f"Left out, because safetensors holds tensors alone: {_listed(missing)}."] if missing else []


def _told_shared(found: Sequence[_Tensor]) -> list[str]:
    places: Mapping[tuple[int, int], int] = Counter(
        (tensor.piece.begins, tensor.piece.size)
        for tensor in found
        if isinstance(tensor.piece, Region) and tensor.piece.size
    )
    shared = [
        tensor.name
        for tensor in found
        if isinstance(tensor.piece, Region) and places[tensor.piece.begins, tensor.piece.size] > 1
    ]
    return [f"These share one storage and are written each for itself: {_listed(shared)}."] if shared else []


def _listed(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 60 else f"{name[:59]}…" for name in names[:MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
