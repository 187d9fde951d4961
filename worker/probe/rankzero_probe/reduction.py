"""Report what DistributedDataParallel itself counts of its gradient reduction: buckets, times, unused parameters."""

from __future__ import annotations

from typing import Any

from . import process_state

SECONDS = {
    "backward_s": "avg_backward_compute_time",
    "communication_s": "avg_backward_comm_time",
    "overlap_s": "avg_backward_compute_comm_overlap_time",
}
"""Means over the passes that torch samples (the first ten, then every hundredth), in nanoseconds there."""
LEAST_SAMPLED = 3


def report(model: Any, number: int, state: process_state.ProcessState) -> None:
    """Note the data of a wrapped model when torch has sampled another pass."""
    if "reduction" in state.off:
        return
    try:
        data = model._get_ddp_logging_data()
        passes = int(data.get("iteration", 0))
        if passes >= LEAST_SAMPLED and state.reduced_passes.get(number) != passes:
            state.reduced_passes[number] = passes
            state.note("reduction", model=number, step=state.step, **_facts(model, data))
    except Exception as error:
        state.failed("reduction", error)


def _facts(model: Any, data: dict[str, Any]) -> dict[str, Any]:
    is_rebuilt = bool(data.get("has_rebuilt_buckets"))
    sizes = str(data["rebuilt_bucket_sizes" if is_rebuilt else "bucket_sizes"])
    times = {name: int(data.get(key, 0)) / 1e9 for name, key in SECONDS.items()}
    return {
        "buckets_bytes": [int(size) for size in sizes.split(",")],
        "rebuilt": is_rebuilt,
        "unused_bytes": int(data.get("unused_parameter_size", 0)),
        "static_graph": bool(getattr(model, "static_graph", False)),
        **({} if min(times.values()) < 0 or not times["communication_s"] else times),
    }
