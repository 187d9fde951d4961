"""The pairs of nodes whose bandwidth is measured, and their order. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Pair = tuple[int, int]


def pairs(nodes: int, all_up_to: int) -> list[Pair]:
    """Every pair of `nodes` nodes; with more than `all_up_to` nodes, only the neighbours in a ring."""
    if nodes <= all_up_to:
        return [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    ring = {(min(n, (n + 1) % nodes), max(n, (n + 1) % nodes)) for n in range(nodes)}
    return sorted((a, b) for a, b in ring if a != b)


def rounds(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Divide the pairs into few rounds; no node is in two pairs of one round.

    Each pair goes into the first round where both of its nodes are free. In the order of a round-robin tournament
    this gives n - 1 rounds for all pairs of an even number of nodes, n for an odd number."""
    pairs = list(pairs)
    nodes = max((b for _, b in pairs), default=0) + 1
    schedule: list[list[Pair]] = []
    for pair in sorted(pairs, key=lambda pair: (_round_of(pair, nodes), pair)):
        free = (members for members in schedule if not any(set(pair) & set(other) for other in members))
        if (one := next(free, None)) is not None:
            one.append(pair)
        else:
            schedule.append([pair])
    return schedule


def _round_of(pair: Pair, nodes: int) -> int:
    """The pair's round in a round-robin tournament (circle method): a and b meet in round a + b, the last is fixed."""
    players = nodes + nodes % 2
    a, b = pair
    return (2 * a if b == players - 1 else a + b) % max(1, players - 1)
