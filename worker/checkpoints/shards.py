"""Models in several files: which shards belong together, by their index (`*.index.json`) or by their numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from domain.text.json_values import parse_json
from worker.node.run_files import is_checkpoint_name

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
        return {name for name in parse_json(index.read_bytes())["weight_map"].values() if isinstance(name, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
