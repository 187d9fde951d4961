"""Which nodes measure the bandwidth between them, and in which order; pure."""

from __future__ import annotations

from collections.abc import Iterable

Pair = tuple[int, int]


def pairs(nodes: int, all_up_to: int) -> list[Pair]:
    """Every pair of so many nodes, or of more than `all_up_to` those that are neighbours in a ring."""
    if nodes <= all_up_to:
        return [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    ring = {(min(n, (n + 1) % nodes), max(n, (n + 1) % nodes)) for n in range(nodes)}
    return sorted((a, b) for a, b in ring if a != b)


def rounds(wanted: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs in as few rounds as are easily found; in one round no node is in two pairs.

    Each pair goes into the first round where both of its nodes are free; taken in the order of a round-robin
    tournament this gives n - 1 rounds for all pairs of an even number of nodes, n for an odd one."""
    wanted = list(wanted)
    nodes = max((b for _, b in wanted), default=0) + 1
    found: list[list[Pair]] = []
    for pair in sorted(wanted, key=lambda pair: (_round_of(pair, nodes), pair)):
        free = (each for each in found if not any(set(pair) & set(other) for other in each))
        if (one := next(free, None)) is not None:
            one.append(pair)
        else:
            found.append([pair])
    return found


def _round_of(pair: Pair, nodes: int) -> int:
    """In a round-robin tournament by the circle method: a and b meet in round a + b, the last one stands still."""
    players = nodes + nodes % 2
    a, b = pair
    return (2 * a if b == players - 1 else a + b) % max(1, players - 1)
