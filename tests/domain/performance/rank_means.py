"""Means of ranks."""

from __future__ import annotations

import random

from domain.performance.phases import PhaseTotals

OWN = {"data_s": 0.002, "forward_s": 0.02, "backward_s": 0.035, "optimizer_s": 0.003}
"""Seconds of a step of a rank that nothing slows down."""


def ranks_of(
    *extra: dict[str, float], records: int = 30, steps: int = 10, noise: float = 0.0, waits: str = ""
) -> list[PhaseTotals]:
    """A rank for each argument, which takes so much longer in these phases; all wait for the slowest."""
    chance = random.Random(7)
    steps_by_rank = [{**OWN, **{n: OWN.get(n, 0.0) + s for n, s in more.items()}} for more in extra]
    totals: list[dict[str, list[float]]] = [{} for _ in extra]
    for record in range(records):
        shown = [{n: s * (1 + noise * chance.random()) for n, s in step.items()} for step in steps_by_rank]
        own = [sum(s for n, s in step.items() if n != "cpu_wait_s") for step in shown]
        for rank, step in enumerate(shown):
            step["exposed_comm_s"] = max(own) - own[rank] + 0.001
            step |= {waits: step["exposed_comm_s"]} if waits else {}
            for name, seconds in step.items():
                before = totals[rank].setdefault(name, [0.0] * record)
                before.append((before[-1] if before else 0.0) + seconds * steps)
    numbers = [1 + steps * (record + 1) for record in range(records)]
    walls = [1000.0 + record for record in range(records)]
    return [PhaseTotals(rank, f"gpu-{rank}", numbers, walls, totals[rank]) for rank in range(len(extra))]
