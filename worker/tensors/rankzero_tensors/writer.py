"""Writes safetensors files tensor by tensor: the library's own writer needs all of them in memory.

A file is eight bytes of length, a JSON object of that many bytes, and the tensors' bytes one after another.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .dtypes import CODES, torch_dtype
from .memory import bytes_of, write_at
from .sources import CheckpointRefused, Failed, TensorFacts, TensorSource

SHARD_BYTES = 5 * 1000**3
"""Most bytes of a shard, as in transformers; a larger tensor has one of its own."""
ALIGNMENT = 8
RESERVED = "__metadata__"


def require_storable(tensors: Mapping[str, TensorFacts]) -> None:
    """Raises CheckpointRefused for what the format cannot hold."""
    if RESERVED in tensors:
        raise CheckpointRefused(f"A tensor is called {RESERVED}, which safetensors reserves: rename it before saving.")
    for name, facts in tensors.items():
        if facts.dtype not in CODES:
            raise CheckpointRefused(
                f"{name} is {facts.dtype}, which safetensors cannot hold: save it as one of {_types()}."
            )


def _types() -> str:
    return ", ".join(CODES)


def shards(tensors: Mapping[str, TensorFacts], most_bytes: int) -> list[dict[str, TensorFacts]]:
    """Divide the tensors in their order, so that each shard but that of a larger tensor has at most so many bytes."""
    divided: list[dict[str, TensorFacts]] = [{}]
    size = 0
    for name, facts in tensors.items():
        if size + facts.nbytes > most_bytes and divided[-1]:
            divided.append({})
            size = 0
        divided[-1][name] = facts
        size += facts.nbytes
    return divided


class SafetensorsWriter:
    """One file that is being written: its header first, whose metadata can be replaced."""

    def __init__(self, path: Path, tensors: Mapping[str, TensorFacts], metadata: Mapping[str, str]) -> None:
        self.path = path
        # Larger elements first, so that each tensor is aligned to its own.
        self.names: Sequence[str] = sorted(tensors, key=lambda name: -torch_dtype(tensors[name].dtype).itemsize)
        self._tensors, self._places = tensors, _places(self.names, tensors)
        header = self._header(metadata)
        self._begin = len(header)
        path.write_bytes(header)

    def _header(self, metadata: Mapping[str, str]) -> bytes:
        entries = {
            name: {"dtype": CODES[facts.dtype], "shape": facts.shape, "data_offsets": [at, at + facts.nbytes]}
            for name, at in self._places.items()
            for facts in (self._tensors[name],)
        }
        text = json.dumps({RESERVED: dict(metadata), **entries}, separators=(",", ":"))
        padded = text.encode().ljust(-(-len(text) // ALIGNMENT) * ALIGNMENT)
        return len(padded).to_bytes(8, "little") + padded

    def write(self, source: TensorSource, done: Callable[[str, int], None]) -> dict[str, int]:
        """Write every tensor as it is read; return the CRC-32 of each. Raises Failed, CheckpointRefused, OSError."""
        with self.path.open("r+b", buffering=0) as file:
            return {name: self._write_tensor(file.fileno(), name, source, done) for name in self.names}

    def _write_tensor(self, descriptor: int, name: str, source: TensorSource, done: Callable[[str, int], None]) -> int:
        crc, begin = 0, self._begin + self._places[name]
        at, end = begin, begin + self._tensors[name].nbytes
        for part in source.parts(name):
            data = bytes_of(part)
            crc = zlib.crc32(data, crc)
            write_at(descriptor, data, at)
            at += len(data)
            done(name, len(data))
        if at != end:
            raise Failed(f"{name} was read as {at - begin} bytes, but the checkpoint announces {end - begin}.")
        return crc

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Replace the metadata by others of the same length, which are known only now. Raises OSError."""
        header = self._header(metadata)
        if len(header) != self._begin:
            raise ValueError("metadata of another length")
        with self.path.open("r+b", buffering=0) as file:
            write_at(file.fileno(), header, 0)


def _places(names: Sequence[str], tensors: Mapping[str, TensorFacts]) -> dict[str, int]:
    places, at = {}, 0
    for name in names:
        places[name] = at
        at += tensors[name].nbytes
    return places
