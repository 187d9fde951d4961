"""Folders that are one checkpoint: which framework wrote them, which files they have, and when they are complete."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from domain.text.json_values import parse_json
from worker.checkpoints.formats import Completeness, completeness, what_is_missing
from worker.node.regular_files import bytes_of, open_regular
from worker.node.run_files import (
    MAX_DEPTH,
    MAX_ENTRIES,
    FileKey,
    counts,
    entry_key,
    is_checkpoint_name,
    is_temporary_name,
)

SIDE_FILE_BYTES = 100 * 1024 * 1024
"""Largest file beside the weights; a tokenizer is smaller."""


class Kind(Enum):
    """The framework that wrote a folder, as far as its completeness depends on it."""

    SHARDED = "distributed checkpoint"
    LIGHTNING = "Lightning checkpoint"
    TRAINER = "HF Trainer checkpoint"
    ACCELERATE = "Accelerate state"
    DEEPSPEED = "DeepSpeed checkpoint"
    PRETRAINED = "pretrained model"


@dataclass(frozen=True)
class Folder:
    """A checkpoint folder at one moment."""

    path: Path
    kind: Kind
    members: Mapping[str, FileKey]
    """Path in the folder -> key, sorted by path."""

    @property
    def key(self) -> FileKey:
        """A hash of all members' keys in place of an inode, their total size, and the time of the last write."""
        text = json.dumps(list(self.members.items())).encode(errors="surrogatepass")
        inodes = int.from_bytes(hashlib.sha256(text).digest()[:7])
        keys = self.members.values()
        return FileKey(inodes, sum(key.size_bytes for key in keys), max((key.mtime_ns for key in keys), default=0))

    @property
    def has_end_mark(self) -> bool:
        """Whether its last file is surely written, so that it need not be quiet for long.

        File times advance in steps of milliseconds: a shard of the same step may belong to the next save."""
        return self.kind is Kind.SHARDED and _sharded_is_all_there(self, is_sure=True)

    def is_new(self, ignored: Mapping[str, FileKey]) -> bool:
        """Whether the attempt wrote any of its weight files."""
        weights = {name: key for name, key in self.members.items() if counts(name.rpartition("/")[2])}
        return any(ignored.get(str(self.path / name)) != key for name, key in weights.items())

    def completeness(self) -> Completeness:
        """Whether all of its files exist and are complete, as far as their bytes can show."""
        if self.kind is Kind.PRETRAINED and self._is_foreign:
            return Completeness.FOREIGN
        return Completeness.COMPLETE if self.what_is_missing() is None else Completeness.INCOMPLETE

    @property
    def _is_foreign(self) -> bool:
        """Whether all of its weights are something else: data sets come in shards, too."""
        weights = [self.path / name for name in self.members if is_checkpoint_name(name)]
        return bool(weights) and all(completeness(path) is Completeness.FOREIGN for path in weights)

    def what_is_missing(self) -> str | None:
        """Why it is incomplete, as the rest of a sentence; None when it is complete."""
        names = {name: name.rpartition("/")[2] for name in self.members}
        if temporary := next((name for name in names if is_temporary_name(names[name])), None):
            return f"{temporary} in it still has a temporary name"
        if not _IS_ALL_THERE[self.kind](self):
            return missing_shards(self.path, self.members) or _LAST[self.kind]
        for name in filter(lambda name: is_checkpoint_name(names[name]), names):
            if completeness(self.path / name) is Completeness.INCOMPLETE:
                return f"of {name} in it, {what_is_missing(self.path / name)}"
        return None


def look(path: Path) -> Folder | None:
    """The folder as it is now; None when it is no checkpoint (any more)."""
    with suppress(OSError), os.scandir(path) as entries:
        return _folder(path, list(entries))
    return None


def find_checkpoints(root: Path, prune: Path | None = None) -> Iterator[Folder | os.DirEntry[str]]:
    """Yield checkpoint folders, and checkpoint files outside of them; links are not followed."""
    entries_left, pending = MAX_ENTRIES, [(root, 0)]
    while pending and entries_left > 0:
        directory, depth = pending.pop()
        entries = _entries(directory)
        entries_left -= len(entries)
        has_own_folder = depth > 0 or any(is_shard(entry.name) for entry in entries)
        folder = _folder(directory, entries) if has_own_folder else None
        if folder is not None:
            yield folder
            if folder.kind is not Kind.PRETRAINED:
                continue  # all below it belongs to it
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH and _may_hold_checkpoints(entry, prune):
                    pending.append((Path(entry.path), depth + 1))
            elif folder and (entry.name in folder.members or is_shard(entry.name)):
                continue  # a shard that no index names is left of an earlier save
            elif is_checkpoint_name(entry.name) and entry.is_file(follow_symlinks=False):
                yield entry


def may_grow_into_folder(path: Path) -> bool:
    """Whether frameworks use this name for the first file of a folder."""
    return _WEIGHTS.fullmatch(path.name) is not None


# -- which folders -----------------------------------------------------------------------------

_WEIGHTS = re.compile(r"(?:pytorch_|diffusion_pytorch_|adapter_)?model(?:[-_.][\w-]+)*\.(?:safetensors|bin)")
_TRAINER_NAME = re.compile(r"checkpoint-\d+")
_TRAINER_FILES = {"trainer_state.json", "training_args.bin", "optimizer.pt", "scheduler.pt"}
_TRAINER_RANDOM_STATE = re.compile(r"rng_state(?:_\d+)?\.pth")
"""One per rank; another rank's may exist before rank 0 has written anything."""
_ACCELERATE_STATE = re.compile(r"random_states_\d+\.pkl")
_DEEPSPEED_STATE = re.compile(r".*mp_rank_\d+.*_states\.pt")
_BESIDE_WEIGHTS = re.compile(
    r".*config\.json|.*\.index\.json|.*token.*\.json|vocab\.(?:json|txt)|merges\.txt|.*\.(?:model|jinja|py)|"
    r"training_args\.bin"
)
"""Files that belong to a model, unlike the growing logs and results in the same folder."""


def _kind_of(name: str, files: set[str]) -> Kind | None:
    """The kind, by the folder's own name and the names in it."""
    is_sharded = any(file.endswith(".distcp") for file in files)
    if name.endswith(".ckpt") and (is_sharded or files & {"meta.pt", "latest", "checkpoint"}):
        return Kind.LIGHTNING
    if is_sharded:
        return Kind.SHARDED
    weights = any(map(_WEIGHTS.fullmatch, files))
    is_trainers = files & _TRAINER_FILES or any(map(_TRAINER_RANDOM_STATE.fullmatch, files))
    if _TRAINER_NAME.fullmatch(name) and (is_trainers or ("config.json" in files and weights)):
        return Kind.TRAINER
    if any(map(_ACCELERATE_STATE.fullmatch, files)) or ("optimizer.bin" in files and weights):
        return Kind.ACCELERATE
    if any(map(_DEEPSPEED_STATE.fullmatch, files)):
        return Kind.DEEPSPEED
    if weights and files & {"config.json", "adapter_config.json"}:
        return Kind.PRETRAINED
    if any(map(is_shard, files)) or (any(map(is_index, files)) and any(map(is_checkpoint_name, files))):
        return Kind.PRETRAINED
    return None


def _folder(path: Path, entries: list[os.DirEntry[str]]) -> Folder | None:
    kind = _kind_of(path.name, {entry.name for entry in entries})
    if kind is None:
        return None
    members = _model_files(path, entries) if kind is Kind.PRETRAINED else dict(_members(path, entries))
    return Folder(path, kind, dict(sorted(members.items()))) if members else None


def _members(path: Path, entries: list[os.DirEntry[str]], below: str = "") -> Iterator[tuple[str, FileKey]]:
    """Yield all regular files of the folder and the folders in it."""
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if below.count("/") < MAX_DEPTH:
                inside = path / entry.name
                yield from _members(inside, _entries(inside), f"{below}{entry.name}/")
        elif entry.is_file(follow_symlinks=False) and (key := entry_key(entry)):
            yield f"{below}{entry.name}", key


def _model_files(path: Path, entries: list[os.DirEntry[str]]) -> dict[str, FileKey]:
    """The keys of the model's files, without shards of an earlier save that its index no longer names."""
    names = {entry.name for entry in entries}
    listed, stale = indexed_shards(path, names), stale_shards(path, names)
    keys = {entry.name: _key_of_model_file(entry, listed) for entry in entries if entry.name not in stale}
    return {name: key for name, key in keys.items() if key}


def _key_of_model_file(entry: os.DirEntry[str], listed: set[str]) -> FileKey | None:
    """Key of a weight file or a small file that belongs to the model; None for other files of its folder."""
    is_weight = bool(_WEIGHTS.fullmatch(entry.name)) or is_shard(entry.name) or entry.name in listed
    if not (is_weight or _BESIDE_WEIGHTS.fullmatch(entry.name)) or not entry.is_file(follow_symlinks=False):
        return None
    key = entry_key(entry)
    return key if key and (is_weight or key.size_bytes <= SIDE_FILE_BYTES) else None


def _may_hold_checkpoints(entry: os.DirEntry[str], prune: Path | None) -> bool:
    is_staging = entry.name.startswith("tmp-checkpoint") or is_temporary_name(entry.name.removeprefix("tmp"))
    return entry.path != str(prune) and not entry.name.startswith(".") and not is_staging


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(directory) as entries:
        return list(entries)
    return []


# -- when they are whole -----------------------------------------------------------------------


def _sharded_is_all_there(folder: Folder, below: str = "", *, is_sure: bool = False) -> bool:
    """Whether `.metadata`, which is renamed in last, is at least as new as the shards; `is_sure`: newer than all."""
    metadata = folder.members.get(f"{below}.metadata")
    if metadata is None:
        return False
    shards = [key for name, key in folder.members.items() if name.startswith(below) and ".distcp" in name]
    newest_ns = max((key.mtime_ns for key in shards), default=0)
    return newest_ns < metadata.mtime_ns if is_sure else newest_ns <= metadata.mtime_ns


def _lightning_is_all_there(folder: Folder) -> bool:
    """Whether `meta.pt`, written after FSDP's shards, or the folder named by DeepSpeed's `latest` is there."""
    if "latest" in folder.members:
        named = _text(folder.path / "latest")
        return any(name.startswith(f"{named}/") for name in folder.members)
    return _sharded_is_all_there(folder) and "meta.pt" in folder.members


def _trainer_is_all_there(folder: Folder) -> bool:
    """Whether rank 0's last file is there; other ranks' random states may come later."""
    return _is_json(folder.path / "trainer_state.json") and _parts_are_all_there(folder)


def _accelerate_is_all_there(folder: Folder) -> bool:
    """Whether random states are there, which each rank writes after rank 0's files; no file is surely the last."""
    return any(map(_ACCELERATE_STATE.fullmatch, folder.members)) and _parts_are_all_there(folder)


def _deepspeed_is_all_there(folder: Folder) -> bool:
    """Whether `latest` beside it names it, written when all ranks are done, or a later folder exists."""
    name, named = folder.path.name, _text(folder.path.parent / "latest")
    beside = [named, *(entry.name for entry in _entries(folder.path.parent) if entry.is_dir())]
    stem, number = _numbered(name)
    return named == name or any(_numbered(one) > (stem, number) and _numbered(one)[0] == stem for one in beside)


def _model_is_all_there(folder: Folder) -> bool:
    """Whether its index, if it has one, and all of its shards are there; a transformers model gets its index last."""
    if missing_shards(folder.path, folder.members):
        return False
    has_config = folder.members.keys() & {"config.json", "adapter_config.json"}
    shards = [name for name in folder.members if is_shard(name) and _WEIGHTS.fullmatch(name)]
    return not (has_config and shards) or any(map(is_index, folder.members))


def _pretrained_is_all_there(folder: Folder) -> bool:
    indexes = [name for name in folder.members if name.endswith((".safetensors.index.json", ".bin.index.json"))]
    shards = [name for name in folder.members if "-of-" in name]
    return bool(indexes or not shards) and all(_has_all_shards(folder, index) for index in indexes)


def _parts_are_all_there(folder: Folder) -> bool:
    """Whether the sharded checkpoints in it, and a model in several files, are complete by their own rules."""
    inner = {name.rpartition("/")[0] for name in folder.members if ".distcp" in name}
    if not all(_sharded_is_all_there(folder, f"{one}/" if one else "") for one in inner):
        return False
    return _pretrained_is_all_there(folder)


_IS_ALL_THERE = {
    Kind.SHARDED: _sharded_is_all_there,
    Kind.LIGHTNING: _lightning_is_all_there,
    Kind.TRAINER: _trainer_is_all_there,
    Kind.ACCELERATE: _accelerate_is_all_there,
    Kind.DEEPSPEED: _deepspeed_is_all_there,
    Kind.PRETRAINED: _model_is_all_there,
}
_LAST = {
    Kind.SHARDED: "its .metadata, which is written last, is missing or older than its shards",
    Kind.LIGHTNING: "what Lightning writes last (meta.pt or latest) is missing or older than its shards",
    Kind.TRAINER: "its trainer_state.json, which is written last, or a part of its model is missing",
    Kind.ACCELERATE: "its random states, which are written last, or a part of its model is missing",
    Kind.DEEPSPEED: "latest beside it, which is written last, does not name it",
    Kind.PRETRAINED: "a shard of its model, or the list of them, is missing",
}


def _has_all_shards(folder: Folder, index: str) -> bool:
    try:
        names = set(parse_json(bytes_of(folder.path / index))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    below = index.rpartition("/")[0]
    return all(f"{below}/{name}".lstrip("/") in folder.members for name in names)


def _is_json(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return isinstance(parse_json(bytes_of(path)), dict)
    return False


def _text(path: Path) -> str:
    with suppress(OSError, ValueError), open_regular(path) as file:
        return file.read(1024).decode().strip()
    return ""


def _numbered(name: str) -> tuple[str, int]:
    """`global_step120` -> ("global_step", 120)."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][:18] or -1)


# Models in several files: which shards belong together, by their index (`*.index.json`) or by their numbers.

_SHARD = re.compile(r"(?P<stem>.*?)[-_.]?(?P<number>\d{1,6})-of-(?P<count>\d{1,6})(?P<suffix>(?:\.[\w-]+)+)")
_COUNTED = re.compile(r"(?:epoch|ep|step|iter|iteration|fold|round|phase|stage)s?$", re.IGNORECASE)
"""`epoch-3-of-10.pt` is whole: what is counted is the training."""
_INDEX = re.compile(r".*\.index(?:\.[\w-]+)?\.json")
"""Diffusers puts a variant's name behind `index`."""
MOST_NAMED = 4


def is_shard(name: str) -> bool:
    """Whether the name is that of one of several files of a checkpoint: `model-00001-of-00004.safetensors`."""
    match = _SHARD.fullmatch(name)
    return match is not None and not _COUNTED.search(match["stem"]) and is_checkpoint_name(name)


def is_index(name: str) -> bool:
    """Whether the name is that of a list of shards: `model.safetensors.index.json`."""
    return _INDEX.fullmatch(name) is not None


def indexed_shards(folder: Path, names: Iterable[str]) -> set[str]:
    """The files that the indexes among these names of a folder list."""
    return {shard for name in filter(is_index, names) for shard in _listed(folder / name) or ()}


def stale_shards(folder: Path, names: Iterable[str]) -> set[str]:
    """The shards that an earlier save left: the index lists others of the same name and another number of shards."""
    names = set(names)
    listed = indexed_shards(folder, names)
    stems = {_set_of(name)[0] for name in listed if is_shard(name)}
    return {name for name in names if is_shard(name) and name not in listed and _set_of(name)[0] in stems}


def missing_shards(folder: Path, names: Iterable[str]) -> str | None:
    """Name the shards that are missing among these names of a folder, as the end of a sentence; None for none."""
    names = set(names)
    for index in sorted(filter(is_index, names)):
        listed = _listed(folder / index)
        if listed is None:
            return f"{index}, the list of its shards, cannot be read"
        if absent := sorted(listed - names):
            return f"{_named(absent, len(listed))}, which {index} lists"
    listed = indexed_shards(folder, names)
    sets = defaultdict[tuple[str, int], set[int]](set)
    for name in filter(is_shard, names - listed):
        sets[_set_of(name)].add(_number(name))
    for (stem, count), numbers in sorted(sets.items()):
        if lacking := count - len(numbers):
            are = "is" if lacking == 1 else "are"
            return f"of the {count} shards of {stem or 'its model'}, {lacking} {are} missing"
    return None


def _named(absent: list[str], count: int) -> str:
    more = f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
    are = "is" if len(absent) == 1 else "are"
    return f"{len(absent)} of its {count} shards {are} missing: {', '.join(absent[:MOST_NAMED])}{more}"


def _set_of(name: str) -> tuple[str, int]:
    """The name and the number of the shards that belong together; the suffix is part of the name."""
    match = _SHARD.fullmatch(name)
    return (f"{match['stem']}{match['suffix']}", int(match["count"])) if match else (name, 1)


def _number(name: str) -> int:
    match = _SHARD.fullmatch(name)
    return int(match["number"]) if match else 1


def _listed(index: Path) -> set[str] | None:
    """The files that an index lists; None if it cannot be read."""
    try:
        return {name for name in parse_json(bytes_of(index))["weight_map"].values() if isinstance(name, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
