"""A run whose worker is killed."""

from __future__ import annotations

from typing import Any

from tests.end_to_end.product import Product, wait_for


def end_with_the_worker_killed(product: Product, run_id: str) -> dict[str, Any]:
    """Kill the worker when the first curve is there; return the run, which has succeeded."""
    wait_for(lambda: product.get(f"/api/runs/{run_id}/metrics?source=events"), "a live curve")
    worker = product.child("worker")
    assert worker is not None
    worker.kill()
    run = product.wait_state(run_id)
    assert run["state"] == "succeeded", run["message"]
    return run
