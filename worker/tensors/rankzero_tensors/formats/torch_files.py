"""Files of torch.save, and the folders of shards that older versions of transformers wrote with it.

torch's weights-only loader reads them; tensors stay in the file, mapped into memory, until they are asked for.
"""

from __future__ import annotations

import errno
import mmap
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..dtypes import facts_of
from ..model_part import Keys, is_other, model_part
from ..names import listed, plain_names, renaming_notes
from ..sources import CheckpointRefused, TensorSource
from .indexes import indexed_files

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".tar")
USUAL_FILES = ("pytorch_model.bin", "adapter_model.bin", "diffusion_pytorch_model.bin", "consolidated.00.pth")
MOST_LEGACY_BYTES = 1024**3
"""Largest file of torch's format before 1.6, which is read into memory whole."""
MOST_GROWTH = 2
"""Most bytes of tensors, as a multiple of the file's: a view can be larger than its storage without end."""
LEGACY_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
SAVE_INSTEAD = "Save the model's tensors alone: torch.save(model.state_dict(), path)."


def recognize(path: Path) -> bool:
    """Whether it is a file of torch.save, or a folder with one, or with shards and an index."""
    if path.is_dir():
        return indexed_files(path, ".bin") is not None or _only_file(path) is not None
    with path.open("rb") as file:
        head = file.read(32)
    return head.startswith(b"PK\x03\x04") or LEGACY_MAGIC in head


def open(path: Path) -> TensorSource:
    """Open the file, or those of the folder. Raises CheckpointRefused, OSError."""
    if not path.is_dir():
        return TorchSource([path])
    if index := indexed_files(path, ".bin"):
        source = TorchSource(index.files)
        index.require_all(source.saved_names)
        source.files = [index.path, *source.files]
        return source
    return TorchSource([file for file in (_only_file(path),) if file])


def _only_file(folder: Path) -> Path | None:
    """The folder's file of weights: of a usual name, or the only one that may be the model's."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES and path.is_file()]
    usual = [path for path in files if path.name in USUAL_FILES]
    models = [path for path in files if not is_other(path.stem) and path.stem != "training_args"]
    return usual[0] if usual else models[0] if len(models) == 1 else None


class TorchSource(TensorSource):
    """The model's tensors in files of torch.save."""

    format = "torch"

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        tensors: dict[str, torch.Tensor] = {}
        self.notes: list[str] = []
        for path in files:
            found, notes = _model_tensors(path)
            if twice := tensors.keys() & found.keys():
                raise CheckpointRefused(f"{listed(sorted(twice))} are in several files: remove one of them.")
            tensors |= found
            self.notes += notes
        self.saved_names = list(tensors)
        plain = plain_names(tensors)
        self.notes += renaming_notes(plain)
        self._tensors = {plain[name]: tensor for name, tensor in tensors.items()}
        self.tensors = {name: facts_of(tensor.shape, tensor.dtype) for name, tensor in self._tensors.items()}
        self.tied = tied_names(self._tensors)

    def read(self, name: str) -> torch.Tensor:
        """Return the tensor, which stays in the mapped file where it is contiguous there."""
        return self._tensors[name].resolve_conj().resolve_neg().contiguous()

    def samples(self, name: str) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
        """Yield the first and the last row."""
        tensor = self._tensors[name]
        if not tensor.dim():
            yield (), tensor
        for row in {0, len(tensor) - 1} if tensor.numel() and tensor.dim() else ():
            yield (slice(row, row + 1),), tensor[row : row + 1]

    def close(self) -> None:
        """Unmap the files."""
        self._tensors = {}


def tied_names(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Names of the same elements of one storage: each later name -> the first one."""
    first: dict[object, str] = {}
    tied = {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(place, name) != name:
            tied[name] = first[place]
    return tied


# -- reading -----------------------------------------------------------------------------------


def _model_tensors(path: Path) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The model's tensors by name, and sentences about the rest. Raises CheckpointRefused, OSError."""
    checkpoint = load(path)
    if not isinstance(checkpoint, dict):
        raise CheckpointRefused(f"{path.name} contains no dictionary. {SAVE_INSTEAD}")
    found = dict(_tensors_in(checkpoint))
    part = model_part(found)
    tensors = {name: _plain(name, found[keys]) for keys, name in part.names.items()}
    if sum(tensor.nbytes for tensor in tensors.values()) > MOST_GROWTH * path.stat().st_size + 1024 * 1024:
        raise CheckpointRefused(
            f"{path.name}: its tensors share so much storage that they would take twice the file's size."
        )
    return tensors, part.notes


def _tensors_in(checkpoint: dict[Any, Any]) -> Iterator[tuple[Keys, torch.Tensor]]:
    """Every tensor in nested dictionaries and lists, with the keys that lead to it."""
    waiting: list[tuple[Keys, Any]] = [((), checkpoint)]
    visited = set()
    while waiting:
        keys, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield keys, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in visited:
            visited.add(id(value))
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [((*keys, key), inner) for key, inner in reversed(items)]


def _plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Raises CheckpointRefused for what has no place in safetensors."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise CheckpointRefused(
            f"{name} is one rank's part of a tensor ({type(tensor).__name__}): merge the files of all ranks."
        )
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        kind = tensor.layout if tensor.layout != torch.strided else tensor.dtype
        raise CheckpointRefused(
            f"{name} is not a plain tensor but {kind}: save it dense (tensor.to_dense(), .dequantize())."
        )
    return tensor.detach()


def load(path: Path) -> Any:
    """Load a file with the weights-only loader; its tensors are mapped from it. Raises CheckpointRefused, OSError."""
    is_zip = zipfile.is_zipfile(path)
    if not is_zip and path.stat().st_size > MOST_LEGACY_BYTES:
        raise CheckpointRefused(
            f"{path.name} has torch's format before 1.6, which is read into memory whole, and is larger than 1 GiB: "
            "torch.load it and torch.save it again."
        )
    try:
        if is_zip:
            _require_little_endian(path)
        with suppress(AttributeError):  # before torch 2.5
            torch.serialization.set_default_mmap_options(mmap.MAP_SHARED)  # does not count as memory
        return torch.load(path, weights_only=True, mmap=is_zip, map_location="cpu")
    except (CheckpointRefused, MemoryError, RecursionError):
        raise
    except Exception as error:  # torch raises many kinds
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # this one: a place before the file's beginning
            raise
        raise CheckpointRefused(
            f"{path.name} is damaged, or holds more than tensors and plain values{_others(path)}, which torch's "
            f"weights-only loader does not read. {SAVE_INSTEAD}"
        ) from error


def _require_little_endian(path: Path) -> None:
    """Raises CheckpointRefused for other files, whose bytes torch would swap in the file itself; BadZipFile."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith("/byteorder"):
                del member.CRC  # torch may have omitted it
                if archive.read(member) == b"big":
                    raise CheckpointRefused(
                        f"{path.name} was written on a big-endian machine: save it on this kind of machine."
                    )


def _others(path: Path) -> str:
    """The classes and functions in the file that the loader does not have, where it can list them."""
    with suppress(Exception):  # a damaged file, one of another format, an older torch
        if names := torch.serialization.get_unsafe_globals_in_checkpoint(path):
            return f" ({listed(sorted(names))})"
    return ""
