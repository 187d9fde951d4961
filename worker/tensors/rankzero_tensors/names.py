"""Plain names: without what wrappers put before a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .sources import CheckpointRefused

WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}
"""Of torch.compile, FSDP, activation checkpoints and Lightning: removed wherever they are in a name."""
DATA_PARALLEL = "module."
"""Of DistributedDataParallel and DataParallel. Removed once, in front of all names: a model may use the word."""
MOST_NAMED = 8


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """The saved names -> the plain ones. Raises CheckpointRefused if two would be the same."""
    plain = {name: _unwrapped(name) for name in names}
    if plain and all(name.startswith(DATA_PARALLEL) for name in plain.values()):
        plain = {name: shorter.removeprefix(DATA_PARALLEL) for name, shorter in plain.items()}
    twice = [name for name, count in Counter(plain.values()).items() if count > 1]
    if twice:
        raise CheckpointRefused(
            f"Without the names of wrappers, several tensors would be called {listed(twice)}: save the state dict of "
            "the unwrapped model (model.module, model._orig_mod)."
        )
    return plain


def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def renaming_notes(plain: dict[str, str]) -> list[str]:
    """A sentence about the shorter names."""
    count = sum(name != shorter for name, shorter in plain.items())
    return [f"{count} of {len(plain)} names lost what wrappers had put into them."] if count else []


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    names = [name if len(name) <= 60 else f"{name[:59]}…" for name in names]
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
