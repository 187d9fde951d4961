"""Commands that are watched where a scheduler starts them, and the run that becomes of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.end_to_end.product import Product, wait_for

ROOT = Path(__file__).parents[2]
ANYWHERE = ROOT / "examples/anywhere"
STEPS = 128
"""Of examples/ddp.py on two ranks: four epochs of 4096 samples in batches of 64 on each."""


def environment(product: Product, own: Path) -> dict[str, str]:
    """Return what a person sets on a node: the dashboard, a token, and where the commands of this Python are."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        "RANKZERO_URL": product.url,
        "RANKZERO_TOKEN": product.token(),
        "RANKZERO_DATA": str(own),
        "PATH": programs,
        "OMP_NUM_THREADS": "1",
    }


def checkout(folder: Path) -> Path:
    """Return a folder with examples/ddp.py in it, as the manifests name it."""
    (folder / "examples").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "examples/ddp.py", folder / "examples")
    return folder


def new_run(
    product: Product,
    before: Sequence[str],
    tail: Callable[[], str] = str,
    programs: Sequence[subprocess.Popen[bytes]] = (),
) -> str:
    """Wait for the one run that has come since; returns its id."""

    def others() -> list[str]:
        assert not any(program.poll() for program in programs), product.tail() + tail()
        return [run_id for run_id in run_ids(product) if run_id not in before]

    runs = wait_for(others, "a watched run", explain=lambda: product.tail() + tail())
    assert len(runs) == 1, runs
    return str(runs[0])


def run_ids(product: Product) -> list[str]:
    """Return the ids of all runs."""
    return [run["id"] for run in product.get("/api/runs?limit=1000")]


def assert_trained_whole(product: Product, run_id: str, nodes: Mapping[int, str], ranks: int = 2) -> dict[str, Any]:
    """Each step of examples/ddp.py once, all checkpoints, one attempt with these nodes; and no guest is left."""
    run = product.wait_state(run_id)
    assert (run["state"], run["attempt"], run["nodes"]) == ("succeeded", 1, len(nodes)), run
    (attempt,) = product.get(f"/api/runs/{run_id}/attempts")
    hosts = {
        task["node_rank"]: re.sub(r"-\d+$", "", task["node"]) for task in attempt["tasks"]
    }  # host0-2: a second one
    assert hosts == nodes, attempt
    series = product.get(f"/api/runs/{run_id}/metrics")
    steps = [step for step, _, _ in series.get("train/loss", [])]
    assert steps == list(range(1, STEPS + 1)), (run, [*series], product.get(f"/api/runs/{run_id}/history"))
    checkpoints = product.get(f"/api/runs/{run_id}/checkpoints")
    names = {Path(each["name"]).name for each in checkpoints if each["complete"]}
    assert names == {f"checkpoint_{epoch}.pt" for epoch in range(1, 5)}
    findings = product.get(f"/api/runs/{run_id}/findings")
    assert findings == [], findings
    for rank in range(ranks):
        assert product.request("GET", f"/api/runs/{run_id}/logs?rank={rank}&stream=out").status_code == 200
    wait_for(lambda: product.get("/api/nodes") == [], "the guests to leave")
    return run


def assert_nothing_is_left(own: Path) -> None:
    """The folders of watched commands go once everything is delivered."""
    wait_for(lambda: not list((own / "watched").glob("*")), f"nothing to be left in {own}/watched")
