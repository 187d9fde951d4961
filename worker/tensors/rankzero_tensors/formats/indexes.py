"""The index of a folder of shards: `*.index.json` with a `weight_map` of names and files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..names import listed
from ..sources import CheckpointRefused


@dataclass(frozen=True)
class Index:
    """An index, and the shards that it names."""

    path: Path
    files: tuple[Path, ...]
    names: frozenset[str]
    """The tensors that the shards must have."""

    def require_all(self, names: Iterable[str]) -> None:
        """Raises CheckpointRefused if a tensor of the index is not among those of the files."""
        if missing := self.names.difference(names):
            raise CheckpointRefused(
                f"{self.path.name} lists tensors that are in none of its files: {listed(sorted(missing))}."
            )


def indexed_files(folder: Path, suffix: str) -> Index | None:
    """The folder's index of shards with this suffix. Raises CheckpointRefused if it or a shard is damaged, OSError."""
    paths = sorted(folder.glob(f"*{suffix}.index.json"))
    if not paths:
        return None
    try:
        places = json.loads(paths[0].read_bytes())["weight_map"]
        names = list(dict.fromkeys(map(str, places.values())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointRefused(f"{paths[0].name} is not an index of shards: it has no weight_map.") from error
    missing = [name for name in names if Path(name).name != name or not (folder / name).is_file()]
    if missing:
        raise CheckpointRefused(f"{paths[0].name} names files that are not there: {listed(missing)}.")
    return Index(paths[0], tuple(folder / name for name in names), frozenset(places))
