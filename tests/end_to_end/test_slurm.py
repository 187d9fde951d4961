"""Runs of pool slurm on a real cluster: submitted, waited for, trained, stopped, and what breaks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.product import wait_for
from tests.end_to_end.slurm import Slurm, SlurmProduct, why_not

UNTIL_TOLD = Path(__file__).parent / "scripts" / "until_told.py"
TWO_NODES: dict[str, Any] = {"pool": "slurm", "nodes": 2, "gpus_per_node": 1}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if reason := why_not():
        pytest.skip(reason)
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.clean_up()


@pytest.fixture(scope="module")
def site(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmProduct]:
    running = SlurmProduct(tmp_path_factory.mktemp("site") / "data", slurm)
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


def texts(site: SlurmProduct, run_id: str) -> list[str]:
    return [entry["text"] for entry in site.get(f"/api/runs/{run_id}/history")]


def test_a_run_trains_on_two_nodes_that_slurm_gives_it(
    site: SlurmProduct, slurm: Slurm, tmp_path: Path
) -> None:
    """It waits while the cluster is full, and says so in words; then it trains and hands over its checkpoint."""
    somebody = slurm.fill()
    told = tmp_path / "told"
    run_id = site.launch(UNTIL_TOLD, args=[str(told)], **TWO_NODES)
    said = wait_for(
        lambda: (text := site.run(run_id)["waiting_for"]) and "resources" in text and text, "Slurm's reason"
    )
    (job,) = slurm.jobs_of(run_id)
    assert said == f"Slurm: waiting for resources (job {job}, partition cpu)"
    slurm.ask("scancel", somebody)
    site.wait_state(run_id, "running")
    assert {node["name"] for node in site.get("/api/nodes") if node["slots"]} == {"n0", "n1"}
    told.touch()
    ended = site.wait_state(run_id)
    assert ended["state"] == "succeeded", (ended, texts(site, run_id))
    assert [c["name"] for c in site.get(f"/api/runs/{run_id}/checkpoints")] == ["work/last.pt"]
    wait_for(lambda: slurm.state(job) == "COMPLETED", "the job to end by itself", 60)
    assert f"Slurm job {job} runs on n[0-1]" in texts(site, run_id)
