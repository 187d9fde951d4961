"""Reads `.metadata` of torch.distributed.checkpoint: a pickle, of which only plain data is made."""

from __future__ import annotations

import io
import pickle  # nosec B403: the classes are listed here
from pathlib import Path
from typing import Any

import torch

from ..sources import CheckpointRefused

MOST_BYTES = 1024**3


class _Plain:
    """Stands for any class of torch.distributed.checkpoint: has the attributes that were saved, and does nothing."""

    dtype: torch.dtype
    offset: Any = None
    """Of a MetadataIndex that is no tensor's."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple):  # of TensorProperties
            self.dtype = state[0]
        else:
            self.__dict__.update(state)


_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
_PATHS = dict.fromkeys(("Path", "PosixPath", "PurePosixPath"), _Plain)
_METADATA = ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex")
_PROPERTIES = ("TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING", "MEM_FORMAT_ENCODING")
PLAIN: dict[str, dict[str, Any]] = {
    "torch.distributed.checkpoint.metadata": dict.fromkeys((*_METADATA, *_PROPERTIES), _Plain),
    "torch.distributed._shard.sharded_tensor.metadata": dict.fromkeys(_PROPERTIES, _Plain),
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo": _Plain},
    "torch.serialization": {"_get_layout": str},
    "torch": {"Size": tuple, **_DTYPES},
    "collections": {"OrderedDict": dict},
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,
}
"""Module -> its names -> what is made instead, so that nothing of torch is called or even imported."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a plain class. Raises CheckpointRefused for any other."""
        try:
            return PLAIN[module][name]
        except KeyError:
            raise CheckpointRefused(
                f"Its .metadata holds {module}.{name}, which is none of the plain classes of "
                "torch.distributed.checkpoint: it is not read."
            ) from None


def read_metadata(path: Path) -> Any:
    """Read a folder's `.metadata`. Raises CheckpointRefused, OSError."""
    if path.stat().st_size > MOST_BYTES:
        raise CheckpointRefused(f"{path.parent.name}/.metadata is larger than 1 GiB: it is damaged.")
    data = path.read_bytes()
    try:
        metadata = _PlainUnpickler(io.BytesIO(data)).load()
        metadata.state_dict_metadata.items(), metadata.storage_data.items(), metadata.planner_data
        return metadata
    except (CheckpointRefused, MemoryError, RecursionError):
        raise
    except Exception as error:  # a damaged pickle raises any
        raise CheckpointRefused(
            f"{path.parent.name}/.metadata is damaged, or of an unknown version of torch: {error}."
        ) from error
