"""Folders that are one checkpoint: which framework wrote them, which files they have, and when they are complete."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from domain.checkpoints.names import Rank, is_folder_of_one_save, part_name
from domain.text.json_values import parse_json
from worker.checkpoints.formats import Completeness, completeness, what_is_missing
from worker.checkpoints.rank_files import (
    SIDE_SUFFIXES,
    Ranks,
    file_sets,
    is_one_save,
    ranks_by_pattern,
    ranks_of_others,
)
from worker.node.regular_files import bytes_of, open_regular
from worker.node.run_files import (
    CHECKPOINT_SUFFIXES,
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
    SAVE = "folder of one save"
    """Files of ranks and parts in a folder of their own: `global_step_20/actor/model_world_size_2_rank_1.pt`."""
    FILES = "files of one save"
    """Files of ranks and parts beside those of other saves: `model_000120.pt`, `optim_000120_rank1.pt`."""


@dataclass(frozen=True)
class Folder:
    """A checkpoint folder at one moment."""

    path: Path
    kind: Kind
    members: Mapping[str, FileKey]
    """Path in the folder -> key, sorted by path."""
    save: str = ""
    """Of files beside those of other saves, the name of theirs."""
    ranks: Ranks = field(default_factory=Ranks, compare=False)

    @property
    def place(self) -> Path:
        """The path that names it: the folder's, or what the names of its files have in common."""
        return self.path / self.save

    def look(self) -> Folder | None:
        """Read the folder again; None when it is no longer a checkpoint."""
        if self.kind is not Kind.FILES:
            return look(self.path, self.ranks.world_size)
        alike = _file_sets(self.path, _entries(self.path), self.ranks.world_size, is_root=bool(self.save))
        return next((one for one in alike if one.save == self.save), None)

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

    @property
    def is_unclear(self) -> bool:
        """Whether it may be all of a checkpoint or some ranks' files of one, and nothing tells which."""
        has_parts = self.kind in (Kind.SAVE, Kind.FILES)
        return has_parts and self.ranks.are_unclear(self.members) and _is_tracked(self) is None

    def missing_ranks(self) -> str | None:
        """Name the files of ranks that are missing in it, as the end of a sentence; None for none."""
        if self.kind is not Kind.DEEPSPEED:
            return self.ranks.missing(self.members)
        parts, is_last = _deepspeed_parts(self), _is_passed(self, _text(self.path.parent / "latest"))
        return (self.ranks if is_last else self.ranks.of_all(parts)).missing(parts)

    def what_is_missing(self) -> str | None:
        """Why it is incomplete, as the rest of a sentence; None when it is complete."""
        names = {name: name.rpartition("/")[2] for name in self.members}
        if temporary := next((name for name in names if is_temporary_name(names[name])), None):
            return f"{temporary} in it still has a temporary name"
        if not _IS_ALL_THERE[self.kind](self):
            return self.missing_ranks() or missing_shards(self.path, self.members) or _LAST[self.kind]
        for name in filter(lambda name: is_checkpoint_name(names[name]), names):
            if completeness(self.path / name) is Completeness.INCOMPLETE:
                return f"of {name} in it, {what_is_missing(self.path / name)}"
        return None


def look(path: Path, world_size: int = 1) -> Folder | None:
    """The folder as it is now; None when it is no checkpoint (any more)."""
    with suppress(OSError), os.scandir(path) as entries:
        return _folder(path, list(entries), world_size)
    return None


def find_checkpoints(root: Path, prune: Path | None = None, world_size: int = 1) -> Iterator[Folder | os.DirEntry[str]]:
    """Yield checkpoint folders, files that are one checkpoint together, and other checkpoint files; no links."""
    entries_left, pending = MAX_ENTRIES, [(root, 0)]
    in_sets = set[str]()
    while pending and entries_left > 0:
        directory, depth = pending.pop()
        entries = _entries(directory)
        entries_left -= len(entries)
        has_own_folder = depth > 0 or any(is_shard(entry.name) for entry in entries)
        folder = _folder(directory, entries, world_size) if has_own_folder else None
        if folder is not None and not in_sets.isdisjoint(str(directory / name) for name in folder.members):
            continue
        if folder is not None:
            yield folder
            if folder.kind is not Kind.PRETRAINED:
                continue  # all below it belongs to it
        beside = [entry for entry in entries if not (folder and entry.name in folder.members)]
        for one in _file_sets(directory, beside, world_size, is_root=depth == 0):
            in_sets.update(str(directory / name) for name in one.members)
            yield one
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH and _may_hold_checkpoints(entry, prune):
                    pending.append((Path(entry.path), depth + 1))
            elif entry.path in in_sets or (folder and (entry.name in folder.members or is_shard(entry.name))):
                continue  # a shard that no index names is left of an earlier save
            elif is_checkpoint_name(entry.name) and entry.is_file(follow_symlinks=False):
                yield entry


def may_grow_into_folder(path: Path) -> bool:
    """Whether the name is one of the first file of a folder, or of the first of several files of a save."""
    return _WEIGHTS.fullmatch(path.name) is not None or part_name(path.name).may_have_others_beside


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


def _folder(path: Path, entries: list[os.DirEntry[str]], world_size: int) -> Folder | None:
    kind = _kind_of(path.name, {entry.name for entry in entries})
    if kind in (None, Kind.PRETRAINED) and is_folder_of_one_save(path.name):
        kind = Kind.SAVE if is_one_save(path.name, dict(_members(path, entries))) else kind
    if kind is None:
        return None
    members = _model_files(path, entries) if kind is Kind.PRETRAINED else dict(_members(path, entries))
    others = _ranks_beside(path) if kind in (Kind.SAVE, Kind.DEEPSPEED) else {}
    return Folder(path, kind, dict(sorted(members.items())), ranks=Ranks(world_size, others)) if members else None


MOST_BESIDE = 3
"""Number of other saves that are looked at for the ranks that write files."""


def _ranks_beside(path: Path) -> dict[str, set[Rank]]:
    """The ranks that wrote files into the folders beside it, those of the nearest saves."""
    stem, number = _numbered(path.name)
    beside = [entry for entry in _entries(path.parent) if entry.name != path.name]
    alike = [entry for entry in beside if number < 0 or _numbered(entry.name)[0] == stem]
    nearest = sorted(alike, key=lambda entry: abs(_numbered(entry.name)[1] - number))
    folders = [Path(entry.path) for entry in nearest if entry.is_dir(follow_symlinks=False)][:MOST_BESIDE]
    return ranks_by_pattern(name for folder in folders for name, _ in _members(folder, _entries(folder)))


def _file_sets(path: Path, entries: list[os.DirEntry[str]], world_size: int, *, is_root: bool) -> list[Folder]:
    """The checkpoints of several files directly in a folder, or in folders of ranks in it (`rank_0/last.pt`)."""
    ranks = [entry for entry in entries if part_name(entry.name).rank and entry.is_dir(follow_symlinks=False)]
    folders = {entry.name: path / entry.name for entry in ranks}
    inside = [file for name, one in folders.items() for file in _members(one, _entries(one), f"{name}/")]
    files = [entry for entry in entries if entry.name.endswith((*CHECKPOINT_SUFFIXES, *SIDE_SUFFIXES))]
    if len(ranks) < 2 and not any(is_checkpoint_name(entry.name) for entry in files):
        return []
    keys = {entry.name: key for entry in files if entry.is_file(follow_symlinks=False) and (key := entry_key(entry))}
    shards = {name for name in keys if is_shard(name) or is_index(name)}
    keys |= dict(inside if len(ranks) > 1 else ())
    sets = file_sets([name for name in keys if name not in shards], world_size, is_root)
    others = ranks_of_others(sets)
    return [
        Folder(path, Kind.FILES, {name: keys[name] for name in names}, save, Ranks(world_size, others[save]))
        for save, names in sets.items()
    ]


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


def _goes_beside_a_model(name: str) -> bool:
    return part_name(name).is_companion and not part_name(name).save


def _key_of_model_file(entry: os.DirEntry[str], listed: set[str]) -> FileKey | None:
    """Key of a weight file or a small file that belongs to the model; None for other files of its folder."""
    is_weight = bool(_WEIGHTS.fullmatch(entry.name)) or is_shard(entry.name) or entry.name in listed
    is_weight = is_weight or (is_checkpoint_name(entry.name) and _goes_beside_a_model(entry.name))
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
    """Whether each rank's part of the optimizer is there, if it is in parts.

    `latest` beside it, written when all ranks are done, is no condition: it names one of several folders, or none."""
    parts = _deepspeed_parts(folder)
    return bool(parts or not any(map(_is_deepspeed_part, folder.ranks.others))) and not folder.missing_ranks()


def _deepspeed_parts(folder: Folder) -> list[str]:
    return list(filter(_is_deepspeed_part, folder.members))


def _is_deepspeed_part(name: str) -> bool:
    return "zero_" in name and name.endswith("optim_states.pt")


def _is_passed(folder: Folder, named: str) -> bool:
    """Whether the last save by name is this one or a later one, or a later folder exists."""
    name = folder.path.name
    beside = [named, *(entry.name for entry in _entries(folder.path.parent) if entry.is_dir())]
    stem, number = _numbered(name)
    return named == name or any(_numbered(one) > (stem, number) and _numbered(one)[0] == stem for one in beside)


def _is_tracked(folder: Folder) -> bool | None:
    """Whether Megatron's file beside it has reached it, written when all ranks are done; None without that file."""
    iteration = _text(folder.path.parent / "latest_checkpointed_iteration.txt")
    if not iteration.isdigit():
        return None
    stem, number = _numbered(folder.path.name)
    return int(iteration) >= number or _is_passed(folder, f"{stem}{iteration}")


def _save_is_all_there(folder: Folder) -> bool:
    """Whether the files of all ranks and the sharded checkpoints in it are there."""
    inner = {name.rpartition("/")[0] for name in folder.members if ".distcp" in name}
    if not all(_sharded_is_all_there(folder, f"{one}/" if one else "") for one in inner):
        return False
    has_reached = _is_tracked(folder) is not False or not folder.ranks.are_unclear(folder.members)
    return has_reached and not (folder.missing_ranks() or missing_shards(folder.path, folder.members))


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


def _files_are_all_there(folder: Folder) -> bool:
    """Whether the files of all ranks are there."""
    return folder.missing_ranks() is None


_IS_ALL_THERE = {
    Kind.SHARDED: _sharded_is_all_there,
    Kind.LIGHTNING: _lightning_is_all_there,
    Kind.TRAINER: _trainer_is_all_there,
    Kind.ACCELERATE: _accelerate_is_all_there,
    Kind.DEEPSPEED: _deepspeed_is_all_there,
    Kind.PRETRAINED: _model_is_all_there,
    Kind.SAVE: _save_is_all_there,
    Kind.FILES: _files_are_all_there,
}
_LAST = {
    Kind.SHARDED: "its .metadata, which is written last, is missing or older than its shards",
    Kind.LIGHTNING: "what Lightning writes last (meta.pt or latest) is missing or older than its shards",
    Kind.TRAINER: "its trainer_state.json, which is written last, or a part of its model is missing",
    Kind.ACCELERATE: "its random states, which are written last, or a part of its model is missing",
    Kind.DEEPSPEED: "the ranks' parts of its optimizer, which other folders have, are missing",
    Kind.PRETRAINED: "a shard of its model, or the list of them, is missing",
    Kind.SAVE: "latest_checkpointed_iteration.txt, which is written last, or a part of its model is missing",
    Kind.FILES: "a file of its model is missing",
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
"""`epoch-3-of-10.pt` is complete: the numbers count the training."""
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
