"""Files of one checkpoint that several ranks write, each its own: which belong together, and which are missing."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import PurePosixPath

from domain.checkpoints.names import (
    PartName,
    Rank,
    is_folder_of_one_save,
    is_part,
    of_rank,
    part_name,
    ranks_by_label,
)
from worker.node.run_files import is_checkpoint_name

SIDE_SUFFIXES = (".json", ".yaml", ".yml", ".pkl")
"""Of small files that belong to a save by their names: `meta_000120.json`."""


@dataclass(frozen=True)
class Ranks:
    """What is known about the ranks that write a checkpoint, besides its own files."""

    world_size: int = 1
    """Of the attempt."""
    others: Mapping[str, set[Rank]] = field(default_factory=dict)
    """The ranks that wrote a file in other saves, by its label with # in place of numbers."""

    def missing(self, paths: Collection[str]) -> str | None:
        """Name the files of ranks that are missing among a save's, as the end of a sentence; None for none."""
        lacking = [of_rank(path, rank) for path, rank in self._lacking(paths)]
        if not lacking:
            return None
        rank = part_name(lacking[0]).rank or ()
        of_rank_words = f" of rank {rank[0]}" if len(rank) == 1 else ""  # otherwise its name says it better
        more = f", and {len(lacking) - 1} more of its ranks' files" if len(lacking) > 1 else ""
        return f"{lacking[0]}{of_rank_words} is missing{more}"

    def of_all(self, paths: Collection[str]) -> Ranks:
        """Return it for files that each rank of the attempt writes, by a number and its place in a model's parts."""
        others = {}
        for pattern, ranks in ranks_by_pattern(paths).items():
            sizes = [max(numbers) + 1 for numbers in zip(*ranks, strict=True)]
            sizes[0] = max(sizes[0], self.world_size // math.prod(sizes[1:]))
            others[pattern] = set(product(*map(range, sizes)))
        return Ranks(self.world_size, others)

    def are_unclear(self, paths: Collection[str]) -> bool:
        """Whether fewer ranks wrote files than train, and nothing tells why, or none of the files is a model's."""
        by_label, weights = ranks_by_label(paths), [path for path in paths if _counts(path)]
        if weights and all(map(is_part, weights)):
            return True
        has_world_size = any(part_name(path).world_size for path in paths)
        is_repeated = any(_pattern(label) in self.others for label in by_label)
        most = max(map(len, by_label.values()), default=0)
        return bool(by_label) and not (has_world_size or is_repeated) and most < self.world_size

    def _lacking(self, paths: Collection[str]) -> Iterator[tuple[str, Rank]]:
        """Yield each missing rank with the path of the same file of another rank."""
        by_label = ranks_by_label(paths)
        examples = {part_name(path).label: path for path in sorted(paths, reverse=True) if part_name(path).rank}
        grid = _grid(rank for ranks in by_label.values() for rank in ranks)
        for label, path in sorted(examples.items()):
            for rank in sorted(self._needed(part_name(path), by_label[label], grid) - by_label[label]):
                yield path, rank

    def _needed(self, name: PartName, ranks: set[Rank], grid: set[Rank]) -> set[Rank]:
        if name.world_size:
            return {(rank,) for rank in range(name.world_size)}
        if len(ranks) >= self.world_size:
            return grid
        return grid | self.others.get(_pattern(name.label), set())


def ranks_by_pattern(paths: Iterable[str]) -> dict[str, set[Rank]]:
    """The ranks that wrote each file, by its label with # in place of numbers: alike in all saves."""
    by_pattern = defaultdict[str, set[Rank]](set)
    for label, ranks in ranks_by_label(paths).items():
        by_pattern[_pattern(label)] |= ranks
    return dict(by_pattern)


def ranks_of_others(saves: Mapping[str, Iterable[str]]) -> dict[str, dict[str, set[Rank]]]:
    """For each save, the ranks that wrote the same files in the others, by their patterns."""
    own = {save: ranks_by_pattern(paths) for save, paths in saves.items()}
    written = Counter((pattern, rank) for files in own.values() for pattern, ranks in files.items() for rank in ranks)
    patterns = defaultdict[str, set[Rank]](set)
    for pattern, rank in written:
        patterns[pattern].add(rank)
    return {
        save: {
            pattern: others
            for pattern in files
            if (others := {rank for rank in patterns[pattern] if written[pattern, rank] > (rank in files[pattern])})
        }
        for save, files in own.items()
    }


@lru_cache(maxsize=1 << 15)
def _pattern(label: str) -> str:
    return re.sub(r"\d+", "#", label)


def _grid(ranks: Iterable[Rank]) -> set[Rank]:
    """All places of the smallest grid that holds these ranks, from 0."""
    by_length = defaultdict[int, list[Rank]](list)
    for rank in ranks:
        by_length[len(rank)].append(rank)
    sizes = [[range(max(numbers) + 1) for numbers in zip(*alike, strict=True)] for alike in by_length.values()]
    return {rank for size in sizes for rank in product(*size)}


# -- which files belong together -----------------------------------------------------------------


def is_one_save(folder: str, paths: Collection[str]) -> bool:
    """Whether a folder, by its name and the paths of all files below it, is one checkpoint of several files."""
    if not is_folder_of_one_save(folder) or any(_has_another_save(path) for path in paths):
        return False
    units = {str(PurePosixPath(path).parent) if path.endswith(".distcp") else path for path in paths if _counts(path)}
    names = list(map(part_name, units))
    if any(name.rank is not None for name in names):
        return len({name.numbers for name in names if name.rank is not None}) == 1
    has_parts = any(name.is_companion or name.models for name in names)
    return len(units) > 1 and has_parts and all(name.names_only_parts and not name.numbers for name in names)


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _counts(path: str) -> bool:
    return is_checkpoint_name(_last(path)) or path.endswith(".distcp")


def _has_another_save(path: str) -> bool:
    return any(map(is_folder_of_one_save, PurePosixPath(path).parts[:-1]))


def file_sets(paths: Iterable[str], world_size: int, is_root: bool) -> dict[str, list[str]]:
    """The files of each save among the files of a folder, by the save's name in it; empty where it is the folder's.

    A save's files have the same numbers in their names, or differ in nothing but rank and part."""
    saves = defaultdict[tuple[str, str], dict[str, PartName]](dict)
    for path in paths:
        name = part_name(path)
        if is_checkpoint_name(_last(path)) or (path.endswith(SIDE_SUFFIXES) and name.names_only_parts):
            saves[name.label.rpartition("/")[0] or ".", name.save][path] = name
    return {
        stem: sorted(files)
        for (folder, save), names in saves.items()
        if len(names) > 1 or any(name.rank is not None for name in names.values())
        for stem, files in _sets(folder, bool(save) or (is_root and folder == "."), names, world_size)
    }


def _sets(
    folder: str, is_named: bool, names: dict[str, PartName], world_size: int
) -> Iterator[tuple[str, dict[str, PartName]]]:
    """Yield the sets of files with the same numbers: one, or several where more than one model is whole by itself."""
    weights = {path: name for path, name in names.items() if is_checkpoint_name(_last(path))}
    models = {name.label: name.models for name in weights.values() if not (name.is_companion or name.is_data)}
    is_together = len(set(models.values())) == len(models)
    if not is_together:
        for label in models:
            alike = {path: name for path, name in weights.items() if name.label == label}
            if _is_set(alike, world_size):
                yield _stem(label), alike
    elif _is_set(weights, world_size):
        label = min(
            models or [name.label for name in weights.values()], key=lambda label: (bool(models.get(label)), label)
        )
        yield (_stem(label) if is_named else "" if folder == "." else folder), names


def _is_set(names: dict[str, PartName], world_size: int) -> bool:
    """Whether files with the same numbers are one checkpoint: of several ranks, or a model and what goes beside it."""
    if any(name.rank is not None for name in names.values()):
        return len(names) > 1 or max(world_size, *(name.world_size or 1 for name in names.values())) > 1
    if not names:
        return False
    has_number = any(name.numbers for name in names.values())
    is_several = has_number and all(name.models for name in names.values())
    has_both = len({name.is_companion for name in names.values()}) > 1
    return len(names) > 1 and (is_several or has_both)


def _stem(label: str) -> str:
    return re.sub(r"(?:\.(?:pt|pth|bin|ckpt|safetensors|tar))+$", "", label)
