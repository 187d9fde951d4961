"""The global batches of a study, each with its steps and learning rate, or a refusal with the rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dashboard.planning.resolve import Resolved
from dashboard.script_reader.reading import Script
from domain.choices import RECIPES
from domain.errors import InvalidRequest
from domain.scaling.batches import scaled_rate
from domain.scaling.measurement import WARMUP_STEPS, Layout
from domain.text.formats import count


def strong_batches(requested: Sequence[int] | None, resolved: Resolved, sizes: Sequence[Layout]) -> list[int]:
    """Return the global batches in ascending order, by default that of the smallest size. Raises InvalidRequest."""
    spec = resolved.spec
    if not takes(resolved, "batch_size") or not (requested or spec.batch_size):
        raise InvalidRequest(
            "batch_size",
            "batch_size: the study divides a global batch among the ranks, so the script must take it: give "
            "--batch-size and hand it over, for example with -- --batch-size '{batch_size}'.",
        )
    of_smallest = (spec.batch_size or 1) * spec.accumulate * sizes[0].devices
    batches = sorted(set(requested or [of_smallest]))
    for size in sizes:
        _check_divided(batches, size.devices, spec.accumulate, "global_batches" if requested else "batch_size")
    return batches


def of_batch(batch: int, batches: Sequence[int], steps: int, resolved: Resolved) -> dict[str, Any]:
    """Return what is stored of a point's global batch: `steps` are those of the largest one."""
    rate = scaled_rate(resolved.spec, batch, batches) if takes(resolved, "lr") else None
    return {"global_batch_size": batch, "lr": rate, "steps": _steps(batch, max(batches), steps)}


def takes(resolved: Resolved, field: str) -> bool:
    """Whether a field of the spec reaches the program: a recipe's, by a placeholder or by a variable that it reads."""
    spec, script = resolved.spec, resolved.script
    if spec.target in RECIPES or spec.hands_over(field):
        return True
    return isinstance(script, Script) and field in script.variables


def _steps(batch: int, largest: int, steps: int) -> int:
    """Steps after the warm-up with which a run has seen as many samples as one with the largest batch."""
    return math.ceil((WARMUP_STEPS + steps) * largest / batch) - WARMUP_STEPS


def _check_divided(batches: Sequence[int], ranks: int, accumulate: int, field: str) -> None:
    for batch in batches:
        if batch % (ranks * accumulate):
            steps = f" and {accumulate} accumulated passes" if accumulate > 1 else ""
            raise InvalidRequest(
                field,
                f"{field}: the global batch of {count(batch)} cannot be divided among {ranks} ranks{steps}; "
                f"choose a multiple of {ranks * accumulate}.",
            )
