"""Read the name of a checkpoint's file: the rank that wrote it, the part that it holds, and the save. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

ARCHIVE_SUFFIX = ".tar"
FILE_SUFFIX = ".pth.tar"
"""Many scripts use this suffix for files of torch.save, which are not archives."""
SAME_MOMENT_S = 5.0
"""Seconds within which the ranks of one run write what belongs to one step."""
Rank = tuple[int, ...]
"""A rank's number, or its place in a grid: `mp_rank_01_003` is (1, 3)."""
SAME_MOMENT_S = 5.0
"""Seconds within which the ranks of one run write what belongs to one step."""


@dataclass(frozen=True)
class PartName:
    """The name of a file that may be one of several of a checkpoint."""

    label: str
    """The path without rank and world size: `actor/model.pt`."""
    rank: Rank | None
    world_size: int | None
    words: tuple[str, ...]
    """The words of its last component, in small letters."""
    numbers: tuple[str, ...]
    """The integers in its last component, as they are written: `000120`."""

    @property
    def save(self) -> str:
        """The name that the files of one save share: their numbers, otherwise the words that name no part."""
        return "-".join(self.numbers) or "-".join(term for term in self.words if term not in _KNOWN)

    @property
    def is_companion(self) -> bool:
        """Whether it holds only what goes beside a model, such as its optimizer: nothing resumes from it alone."""
        words = set(self.words)
        return bool(words & _COMPANIONS) and "model" not in words and words <= _KNOWN

    @property
    def is_data(self) -> bool:
        """Whether it holds only data or settings, such as `data.pt`."""
        words = set(self.words)
        return bool(words & _DATA) and words <= _COMPANIONS | _DATA | _NEUTRAL

    @property
    def models(self) -> frozenset[str]:
        """Which of the models that are trained together it holds: `generator_20.pt`, `netD_20.pt`; empty for others."""
        return _SEVERAL & set(self.words)

    @property
    def names_only_parts(self) -> bool:
        """Whether all of its words are those of parts: `meta`, `model`, `trainer_state`."""
        return bool(self.words) and set(self.words) <= _KNOWN

    @property
    def may_have_others_beside(self) -> bool:
        """Whether files of this name are usually one of several of a save."""
        return self.rank is not None or bool(set(self.words) & (_COMPANIONS | _SEVERAL | _MODELS))


def is_folder(name: str) -> bool:
    """Whether the checkpoint is a folder, stored as one archive."""
    return stem_and_suffix(name)[1] == ARCHIVE_SUFFIX


def stem_and_suffix(name: str) -> tuple[str, str]:
    """Divide a checkpoint's name: `a/last.pth.tar` is a file `a/last`, `a/epoch-3.tar` a folder `a/epoch-3`."""
    suffix = FILE_SUFFIX if name.endswith(FILE_SUFFIX) else PurePosixPath(name).suffix
    return name.removesuffix(suffix), suffix


@lru_cache(maxsize=1 << 15)
def part_name(path: str) -> PartName:
    """Read the path of a file, or of a folder that is sent as an archive, relative to where its save begins."""
    ranks = [int(number) for rank in _RANK.findall(path) for number in re.findall(r"\d+", rank)]
    worlds = _WORLD.findall(path)
    label = without_rank(path)
    stem = _SUFFIX.sub("", label.rpartition("/")[2])
    tokens = _TOKEN.findall(stem)
    return PartName(
        label=label,
        rank=tuple(ranks) or None,
        world_size=int(worlds[-1]) if worlds else None,
        words=tuple(token.lower() for token in tokens if not token[0].isdigit()),
        numbers=tuple(token for token in tokens if token.isdigit()),
    )


def without_rank(path: str) -> str:
    """Return the path without what differs between the ranks, and without the world size."""
    parts = (_RANK_AND_WORLD.sub("", part).lstrip("-_.=") if _RANK.search(part) else part for part in path.split("/"))
    named = [part for part in parts if part and not part.startswith(".")]
    if named and named[-1] in _SUFFIXES:  # `rank0.pt` has no other name
        named[-1] = f"rank.{named[-1]}"
    return "/".join(named) or path.rpartition("/")[2]


def of_rank(path: str, rank: Rank) -> str:
    """Return the path of the same file of another rank, its numbers as wide as in this one."""
    numbers = iter(rank)

    def other(number: re.Match[str]) -> str:
        return f"{next(numbers, 0):0{len(number[0])}d}"

    return _RANK.sub(lambda match: re.sub(r"\d+", other, match[0]), path)


def is_part(path: str) -> bool:
    """Whether the file can never be resumed from alone: an optimizer's state, data, random states."""
    name = part_name(path)
    return name.is_companion or name.is_data


def ranks_by_label(paths: Iterable[str]) -> dict[str, set[Rank]]:
    """The ranks that wrote each of the files, by the path without the rank; files without a rank are left out."""
    ranks: dict[str, set[Rank]] = {}
    for name in map(part_name, paths):
        if name.rank is not None:
            ranks.setdefault(name.label, set()).add(name.rank)
    return ranks


def is_folder_of_one_save(name: str) -> bool:
    """Whether a folder's name counts the training: `global_step_20`, `iter_0000020`, `epoch=3-loss=1.2`, `00020`."""
    return name.isdigit() or _SAVE_FOLDER.search(name) is not None


_SUFFIXES = {"pt", "pth", "bin", "ckpt", "safetensors", "json", "yaml", "yml", "pkl"}
_SUFFIX = re.compile(r"(?:\.(?:pt|pth|bin|ckpt|safetensors|tar|json|yaml|yml|pkl))+$")
_TOKEN = re.compile(r"[A-Za-z]+|\d+(?:\.\d+)*")
_RANK = re.compile(
    r"(?<![A-Za-z])(?:mp_rank_\d+(?:_\d{3})*|(?:[tpdec]p_?)?(?:rank|gpu|proc|process)[-_=]?\d+)(?!\d)", re.IGNORECASE
)
_WORLD = re.compile(r"(?<![A-Za-z])(?:world(?:_?size)?|ws|(?<=\d)[-_]?of|of)[-_=]?(\d+)", re.IGNORECASE)
_RANK_AND_WORLD = re.compile(rf"[-_.=]*(?:{_RANK.pattern}|{_WORLD.pattern})", re.IGNORECASE)
_SAVE_FOLDER = re.compile(
    r"(?<![a-z])(?:global_?)?(?:steps?|iter|iteration|it|epochs?|ep|checkpoint|ckpt|update|batch)[-_=]?\d+",
    re.IGNORECASE,
)
_COMPANIONS = frozenset(
    "optim optims optimizer optimizers optimiser opt sched scheduler schedulers scaler rng random extra dataloader "
    "loader sampler".split()
)
_DATA = frozenset("data dataset meta metadata args config".split())
_SEVERAL = frozenset(
    "generator discriminator gen disc dis netg netd g d actor critic policy value encoder decoder unet vae ema "
    "student teacher".split()
)
"""Models that are trained together."""
_NEUTRAL = frozenset(
    "state states dict lr grad global epoch epochs ep step steps iter iteration ckpt checkpoint train training trainer "
    "rank".split()
)
_MODELS = frozenset("model models net network weights params module".split())
_KNOWN = _COMPANIONS | _DATA | _SEVERAL | _NEUTRAL | _MODELS
