"""Judge whether the processes of a watched run train together, by the worlds that their ranks know. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.messages import Finding
from domain.text.formats import as_list, plural

KIND = "worlds differ"
MOST_NAMED = 8


@dataclass(frozen=True)
class SeenWorld:
    """The world that the ranks of one process know."""

    process: int
    host: str
    world_size: int
    ranks: int | None
    """Ranks of its own, as far as they are known."""


def worlds_finding(seen: Sequence[SeenWorld]) -> Finding | None:
    """Return the finding that several processes do not train as one world; None where they may."""
    sizes = {one.world_size for one in seen}
    ranks = sum(one.ranks or 0 for one in seen)
    if len(seen) < 2 or (len(sizes) == 1 and ranks <= max(sizes)):
        return None
    worlds = [f"process {one.process} on {one.host} one of {plural(one.world_size, 'rank')}" for one in seen]
    together = f"; together they have {plural(ranks, 'rank')}" if ranks else ""
    return Finding(
        kind=KIND,
        evidence=f"Its processes see different worlds: {as_list(worlds, MOST_NAMED)}{together}.",
        meaning="They do not train together: some have a world of their own, as with a fallback to localhost, so each "
        "trains the whole job alone and no gradients are exchanged between them.",
        fix="Give all of them the same MASTER_ADDR and MASTER_PORT, the address of the first host, and the WORLD_SIZE "
        "and RANK that count all of them; with torchrun --nnodes, --node-rank and --rdzv-endpoint.",
    )
