"""Merges a checkpoint of any format into one folder of safetensors with plain names, and proves that they are equal."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .beside import copy_beside, files_beside, require_config
from .digests import Digests, describe, digesting
from .memory import bytes_of
from .opening import open_source
from .proof import prove
from .reports import ProgressReport
from .sources import Failed, TensorFacts, TensorSource
from .writer import SHARD_BYTES, SafetensorsWriter, require_storable, shards

WEIGHTS = "model.safetensors"
DOCUMENT = "merge.json"
"""What was merged of what, and how it was proven; beside the weights."""
SPARE_BYTES = 64 * 1024 * 1024
NO_DIGEST = "0" * 64
Done = Callable[[str, int], None]
"""Takes the name of a tensor that was written or checked, and its bytes."""


def run(arguments: list[str], report: ProgressReport) -> dict[str, Any]:
    """Merge as the command line says; the result's document. Raises Refused, Failed, OSError."""
    options = _options(arguments)
    source = open_source(options.source)
    try:
        merge = Merge(source, options.source, options.format, report)
        inside = options.source if options.source.is_dir() else options.source.parent
        beside_folders = [*dict.fromkeys([inside, *(file.parent for file in source.files)]), *options.beside]
        return merge.into(options.target, beside_folders, options.room)
    finally:
        source.close()


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rankzero_tensors merge")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path, help="the folder to make")
    parser.add_argument("--format", choices=["safetensors", "hf"], default="safetensors")
    parser.add_argument("--room", type=int, help="limit on bytes written")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="look for config and tokenizer here")
    return parser.parse_args(arguments)


@dataclass
class Merge:
    """One merge."""

    source: TensorSource
    path: Path
    """The checkpoint's file or folder."""
    format: str
    report: ProgressReport
    _done_bytes: int = 0
    _sums: dict[str, int] = field(default_factory=dict)

    def into(self, target: Path, beside_folders: Sequence[Path], room: int | None) -> dict[str, Any]:
        """Write the folder under a temporary name and rename it. Raises Refused, Failed, OSError."""
        require_storable(self.source.tensors)
        beside = files_beside(beside_folders)
        if self.format == "hf":
            require_config(beside)
        tied, notes = self._tied()
        tensors = {name: facts for name, facts in self.source.tensors.items() if name not in tied}
        self._require_room(tensors, beside, target, room)
        with _temporary(target) as part:
            with digesting() as digests:
                document = self._written(part, tensors, tied, digests)
            copy_beside(beside, part)
            others = [describe(path, path.name) for path in sorted(part.glob("*.*")) if path.suffix != ".safetensors"]
            document |= {"files": document["files"] + others, "notes": [*self.source.notes, *notes]}
            sums = {name: f"{crc:08x}" for name, crc in self._sums.items()}
            _write_json(part / DOCUMENT, {**document, "sums": sums})
            part.rename(target)
        return document

    def _tied(self) -> tuple[dict[str, str], list[str]]:
        """The names to drop -> those that stay; a sentence about those whose bytes differ."""
        wanted = {*self.source.tied, *self.source.tied.values()}
        digests = {name: hashlib.sha256(bytes_of(self.source.read(name))).digest() for name in wanted}
        tied = {name: kept for name, kept in self.source.tied.items() if digests[name] == digests[kept]}
        notes = [
            f"{name} was written although it is tied to {kept}: their values differ."
            for name, kept in self.source.tied.items()
            if name not in tied
        ]
        return tied, notes

    def _require_room(
        self, tensors: Mapping[str, TensorFacts], beside: Mapping[str, Path], target: Path, room: int | None
    ) -> None:
        """Raises Failed if the disk, or the given room, is too small."""
        needed = _size(tensors) + sum(path.stat().st_size for path in beside.values()) + SPARE_BYTES
        free = shutil.disk_usage(target.parent).free
        if needed > (least := min(free, free if room is None else room)):
            raise Failed(
                f"Merging takes {_gigabytes(needed)}, and {_gigabytes(least)} are free on the node: delete something "
                "there (old runs' folders, checkpoints), then merge again."
            )

    def _written(
        self, part: Path, tensors: Mapping[str, TensorFacts], tied: Mapping[str, str], digests: Digests
    ) -> dict[str, Any]:
        """Write the weights, and prove them. Raises Failed, Refused, OSError."""
        sources = {_name_in(self.path, path): path for path in self.source.files}
        described = [digests.of(path, name) for name, path in sources.items()]
        files = self._write(part, tensors, self._metadata(tied, dict.fromkeys(sources, NO_DIGEST)))
        found = [future.result() for future in described]
        metadata = self._metadata(tied, {about["name"]: about["sha256"] for about in found})
        for file in files:
            file.finish(metadata)
        self._write_index(part, files, tensors)
        return self._proven(files, tensors, digests) | {"tied": dict(tied), "sources": found}

    def _metadata(self, tied: Mapping[str, str], sources: Mapping[str, str]) -> dict[str, str]:
        """Return the metadata of a header, in which transformers asks for `format`."""
        texts = {"merged_from": self.source.format, "sources": json.dumps(sources), "tied": json.dumps(dict(tied))}
        return {"format": "pt", **texts}

    def _write(
        self, part: Path, tensors: Mapping[str, TensorFacts], metadata: Mapping[str, str]
    ) -> list[SafetensorsWriter]:
        groups = shards(tensors, SHARD_BYTES if self.format == "hf" else max(1, _size(tensors)))
        files = [
            SafetensorsWriter(part / name, group, metadata)
            for name, group in zip(_names(len(groups)), groups, strict=True)
        ]
        for file in files:
            self._sums |= file.write(self.source, self._progress(tensors, "writing"))
        return files

    def _progress(self, tensors: Mapping[str, TensorFacts], doing: str) -> Done:
        total = 2 * _size(tensors)

        def done(name: str, nbytes: int) -> None:
            self._done_bytes += nbytes
            self.report.progress(self._done_bytes, total, f"{doing} {name}")

        return done

    def _write_index(self, part: Path, files: Sequence[SafetensorsWriter], tensors: Mapping[str, TensorFacts]) -> None:
        if len(files) > 1:
            places = {name: file.path.name for file in files for name in file.names}
            index = {"metadata": {"total_size": _size(tensors)}, "weight_map": places}
            _write_json(part / f"{WEIGHTS}.index.json", index)

    def _proven(
        self, files: Sequence[SafetensorsWriter], tensors: Mapping[str, TensorFacts], digests: Digests
    ) -> dict[str, Any]:
        described: list[Future[dict[str, Any]]] = [digests.of(file.path, file.path.name) for file in files]
        paths = [file.path for file in files]
        proof = prove(self.source, tensors, self._sums, paths, self._progress(tensors, "checking"))
        return {
            "format": self.format,
            "files": [future.result() for future in described],
            "tensors": len(tensors),
            "bytes": _size(tensors),
            "proof": proof,
        }


# -- files -------------------------------------------------------------------------------------


def _names(count: int) -> list[str]:
    """Return the names of one file, or several, that transformers expects."""
    if count == 1:
        return [WEIGHTS]
    return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """A new folder that the body renames; removed after an exception. Raises Failed, OSError."""
    if target.exists():
        raise Failed(f"{target.name} is there already: name another folder.")
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def _size(tensors: Mapping[str, TensorFacts]) -> int:
    return sum(facts.nbytes for facts in tensors.values())


def _name_in(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix() if folder.is_dir() else path.name


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
