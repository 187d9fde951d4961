"""Processes that are killed, and the points that outlive them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from tests.end_to_end.product import Product, wait_for

UNTIL_TOLD = Path(__file__).parent / "scripts" / "until_told.py"


def assert_training_outlives_kills(product: Product, kills: int, tmp_path: Path) -> None:
    """Worker and dashboard are killed by turns; the ranks stay as they are, and each point is stored."""
    enough = tmp_path / "enough"
    run_id = product.launch(UNTIL_TOLD, gpus_per_node=2, args=[str(enough)])
    product.wait_step(run_id, 3)
    before = product.ranks(run_id)
    for turn in range(kills):
        step = product.run(run_id)["step"]
        kill_and_wait_for_another(product, "worker")
        product.wait_step(run_id, step + 5)
        kill_and_wait_for_another(product, "dashboard")
        product.wait_step(run_id, step + 10)
        assert product.ranks(run_id) == before, f"the training changed in turn {turn}"
    enough.touch()
    ended = product.wait_state(run_id, timeout_s=900)
    assert ended["state"] == "succeeded", ended
    assert ended["attempt"] == 1
    assert stored_points(product, run_id) == written_points(product.data / "runs" / run_id)
    (checkpoint,) = product.get(f"/api/runs/{run_id}/checkpoints")
    assert (checkpoint["name"], checkpoint["complete"]) == ("work/last.pt", True)


def kill_and_wait_for_another(product: Product, command: str) -> None:
    """Its end is said once more; until then what it had just forked may still have its command line."""
    old = wait_for(lambda: product.child(command), f"the {command}")
    said_before = said_to_be_killed(product, command)
    os.kill(old.pid, signal.SIGKILL)
    wait_for(
        lambda: said_to_be_killed(product, command) > said_before, f"the end of the {command}", explain=product.tail
    )
    wait_for(lambda: (new := product.child(command)) and new.pid != old.pid, f"another {command}")


def said_to_be_killed(product: Product, command: str) -> int:
    """How often the product has said it."""
    return product.log.read_text(errors="replace").count(f"{command} ended (SIGKILL")


def stored_points(product: Product, run_id: str) -> dict[str, list[tuple[int, float]]]:
    series = product.get(f"/api/runs/{run_id}/metrics")
    return {name: [(step, value) for step, value, _ in points] for name, points in series.items()}


def written_points(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """What the event files hold, read with TensorBoard's own reader."""
    series: dict[str, list[tuple[int, float]]] = {}
    for file in run_dir.rglob("*tfevents*"):
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                series.setdefault(value.tag, []).append((event.step, value.simple_value))
    return series
