"""A launch is forked where nothing speaks against it, its history says so, and nothing else depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.failing import assert_explained
from tests.end_to_end.kills import assert_training_outlives_kills
from tests.end_to_end.product import Product, is_ready_to_start, safely, wait_for
from worker.launch.warm import IS_WARM

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    running = Product(tmp_path_factory.mktemp("cold") / "data", env={"RANKZERO_WARM_START": "0"})
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


def how_it_started(product: Product, run_id: str) -> str:
    """What the run's history says of the start of its processes."""
    phases = product.get(f"/api/runs/{run_id}/timeline")
    return "".join(phase["note"] for phase in phases if phase["phase"] == "process")


def warm_start(product: Product) -> str:
    return str(product.get("/api/nodes")[0]["load"]["warm_start"])


def prepared(product: Product) -> list[psutil.Process]:
    """The processes that have torch imported, or are importing it."""
    return [p for p in product.processes() if any("worker/warm/start.py" in w for w in safely(p.cmdline, []))]


def test_a_launch_is_forked_and_an_unusual_one_starts_plainly_and_says_why(product: Product, tmp_path: Path):
    (tmp_path / "train.py").write_text("import torch\nprint(torch.ones(1))\n")
    assert warm_start(product).startswith("torch is imported ahead (")
    usual = product.launch(tmp_path / "train.py", gpus_per_node=2)
    assert product.wait_state(usual)["state"] == "succeeded"
    assert how_it_started(product, usual) == IS_WARM
    swept = product.launch(tmp_path / "train.py", gpus_per_node=2, env={"SEED_NAME": "x"})
    assert product.wait_state(swept)["state"] == "succeeded"
    assert how_it_started(product, swept) == IS_WARM
    unusual = product.launch(tmp_path / "train.py", gpus_per_node=2, env={"OMP_NUM_THREADS": "3"})
    assert product.wait_state(unusual)["state"] == "succeeded"
    reason = "OMP_NUM_THREADS has changed since torch was imported"
    assert how_it_started(product, unusual) == f"started plainly, because {reason}"


@pytest.mark.long  # test_supervisors kills one as well
def test_a_process_that_was_killed_is_prepared_again(product: Product):
    wait_for(lambda: any(map(is_ready_to_start, product.get("/api/nodes"))), "torch")
    before = wait_for(lambda: prepared(product), "a process")[0]
    safely(before.kill, None)
    wait_for(lambda: [p for p in prepared(product) if p != before], "another", explain=product.tail)
    wait_for(lambda: any(map(is_ready_to_start, product.get("/api/nodes"))), "torch")


@pytest.mark.long
def test_switched_off_nothing_is_imported_ahead_and_the_end_is_explained_as_well(cold: Product):
    assert warm_start(cold) == "off"
    assert "imported ahead" not in (cold.data / "worker.log").read_text()
    assert_explained(cold, "peer --rank=-1")
    assert_explained(cold, "exit")


@pytest.mark.long
def test_switched_off_kills_leave_the_training_alone(cold: Product, tmp_path: Path):
    assert_training_outlives_kills(cold, 1, tmp_path)
