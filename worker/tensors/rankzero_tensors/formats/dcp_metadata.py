"""Reads `.metadata` of torch.distributed.checkpoint: a pickle, of which only the known plain classes are made."""

from __future__ import annotations

import io
import pickle  # nosec B403: the classes are listed here
from pathlib import Path
from typing import Any

import torch

from ..sources import Refused

MOST_BYTES = 1024**3
_METADATA = "torch.distributed.checkpoint.metadata"
_OF_TORCH_2_2 = "torch.distributed._shard.sharded_tensor.metadata"
PLAIN = {
    _METADATA: {
        "Metadata",
        "TensorStorageMetadata",
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "MetadataIndex",
        "TensorProperties",
        "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    },
    _OF_TORCH_2_2: {"TensorProperties", "MEM_FORMAT_ENCODING"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", *(name for name, value in vars(torch).items() if isinstance(value, torch.dtype))},
    "collections": {"OrderedDict"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePosixPath"},
}
"""Module -> what may be made of it: data without behaviour."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in PLAIN.get(module, ()):
            raise Refused(
                f"Its .metadata holds {module}.{name}, which is none of the plain classes of "
                "torch.distributed.checkpoint: it is not read."
            )
        return super().find_class(module, name)


def read_metadata(path: Path) -> Any:
    """Read a folder's `.metadata`. Raises Refused, OSError."""
    if path.stat().st_size > MOST_BYTES:
        raise Refused(f"{path.parent.name}/.metadata is larger than 1 GiB: it is damaged.")
    data = path.read_bytes()
    try:
        metadata = _PlainUnpickler(io.BytesIO(data)).load()
        metadata.state_dict_metadata.items(), metadata.storage_data.items(), metadata.planner_data
        return metadata
    except (Refused, MemoryError, RecursionError):
        raise
    except Exception as error:  # a damaged pickle raises any
        raise Refused(
            f"{path.parent.name}/.metadata is damaged, or of an unknown version of torch: {error}."
        ) from error
