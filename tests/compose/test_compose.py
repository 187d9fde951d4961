"""docker-compose.yml for real: the image is built, dashboard and workers run in containers and train together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose import wheels
from tests.compose.engine import engine
from tests.compose.stack import Stack, stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(3600)]
TWO_NODES = {"nodes": 2, "gpus_per_node": 1}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    keep = request.config.getoption("--engine-folder")
    fetched = tmp_path_factory.mktemp("wheels")
    with engine(Path(keep) if keep else None) as docker:
        wheels.fetch(fetched)
        with (
            wheels.served(fetched) as address,
            stack(docker, tmp_path_factory.mktemp("stack"), address) as made,
        ):
            yield made


def test_workers_join_under_their_names_and_nobody_is_root(
    running: Stack, record_property: Callable[[str, Any], None]
) -> None:
    record_property("image_size_bytes", running.image_size_bytes())
    print(f"the image is {running.image_size_bytes() / 1e9:.2f} GB")
    nodes = running.get("/api/nodes")
    assert [(node["name"], node["state"]) for node in nodes] == [("worker-1", "alive"), ("worker-2", "alive")]
    assert len({node["address"] for node in nodes}) == 2
    for service in ("dashboard", "worker-1"):
        assert running.compose("exec", "-T", service, "id", "-un").strip() == "rankzero"


def test_the_dashboard_is_reached_from_this_machine_alone(running: Stack) -> None:
    published = running.containers()["dashboard"]["NetworkSettings"]["Ports"]["8765/tcp"]
    assert [each["HostIp"] for each in published] == ["127.0.0.1"]


def test_a_run_on_two_containers_hands_over_its_checkpoint(running: Stack) -> None:
    run_id = running.launch("image_classifier", max_steps=12, **TWO_NODES)
    ended = running.wait_state(run_id, timeout_s=400)
    assert (ended["state"], ended["world_size"]) == ("succeeded", 2), ended
    (attempt,) = running.get(f"/api/runs/{run_id}/attempts")
    assert sorted(task["node"] for task in attempt["tasks"]) == ["worker-1", "worker-2"]
    checkpoint = [each for each in running.get(f"/api/runs/{run_id}/checkpoints") if each["complete"]][-1]
    content = running.request("GET", f"/api/checkpoints/{checkpoint['id']}/file").content
    assert len(content) == checkpoint["size_bytes"] > 0
    assert hashlib.sha256(content).hexdigest() == checkpoint["sha256"]


def test_a_person_s_script_is_found_under_code(running: Stack) -> None:
    run_id = running.launch("/code/ddp.py", args=["--epochs=1"], **TWO_NODES)
    ended = running.wait_state(run_id, timeout_s=400)
    assert ended["state"] == "succeeded", ended


def test_stopping_the_containers_ends_the_runs_properly_first(running: Stack) -> None:
    run_id = running.launch("language_model", max_steps=1_000_000, **TWO_NODES)
    running.wait_step(run_id, 2, timeout_s=400)
    began = time.monotonic()
    running.compose("stop", timeout_s=300)
    took_s = time.monotonic() - began
    print(f"stopped in {took_s:.1f} s")
    workers = [state for name, state in running.containers().items() if name.startswith("worker")]
    assert [worker["State"]["ExitCode"] for worker in workers] == [0, 0], "killed before it was done"
    running.compose("up", "-d", "--no-build", "dashboard")
    ended = running.run(run_id)
    assert (ended["state"], ended["lost_contact"]) == ("stopped", False), ended
    assert took_s < grace_s()
    saved = [each for each in running.get(f"/api/runs/{run_id}/checkpoints") if each["complete"]]
    assert saved, "what it saved when it was told to stop has arrived"


def grace_s() -> float:
    services = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())["services"]
    return float(services["worker-1"]["stop_grace_period"].removesuffix("s"))
