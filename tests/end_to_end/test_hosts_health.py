"""A host that comes and goes is left out at the second attempt that it breaks, and comes back by a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.host_runs import SCRIPT, assert_the_curve_has_no_break
from tests.end_to_end.hosts import Hosts, why_not
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

SHORT = {"RANKZERO_LOST_AFTER_S": "4", "RANKZERO_HEARTBEAT_S": "1"}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts; nothing of them remains."""
    if reason := why_not():
        pytest.skip(reason)
    cluster = Hosts(3, tmp_path, env=SHORT)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.clean_up()


@pytest.mark.long
def test_a_flapping_host_is_left_out_at_its_second_failed_attempt_and_comes_back_by_a_test(
    hosts: Hosts, tmp_path: Path
) -> None:
    release = tmp_path / "told"
    spec = {"nodes": 2, "gpus_per_node": 2, "on_nodes": ["host0", "host1"], "max_restarts": 3, "on_lost_node": "end"}
    run_id = hosts.launch(SCRIPT, args=[str(release)], **spec)
    for attempt in (1, 2):
        wait_for(lambda n=attempt: state(hosts, run_id) == (n, "running"), "the attempt", 120, explain=hosts.tail)
        wait_for(lambda n=attempt: steps_of(hosts, run_id, n), "its steps", 120, explain=hosts.tail)
        assert quarantine(hosts) is None
        hosts[1].cut()
        wait_for(lambda n=attempt: state(hosts, run_id) == (n + 1, "queued"), "the restart", 120, explain=hosts.tail)
        hosts[1].mend()
    found = wait_for(lambda: quarantine(hosts), "the quarantine")
    assert "2 attempts failed because of this node" in found["why"] and "no contact for" in found["why"]
    wait_for(lambda: "host1 is in quarantine" in (hosts.run(run_id)["waiting_for"] or ""), "the reason to wait")
    assert [one["free"] for one in hosts.get("/api/nodes")] == [2, 0, 2]
    wait_for(lambda: hosts.get("/api/nodes")[1]["state"] == "alive", "contact")

    test = wait_for(lambda: begun_test(hosts, "host1"), "its devices to be free", 120, explain=hosts.tail)
    ended = wait_for(lambda: (t := hosts.get(f"/api/tests/{test['id']}"))["ended_at"] and t, "the test", 240)
    assert ended["verdict"] == "passed", ended
    wait_for(lambda: state(hosts, run_id) == (3, "running"), "the third attempt", 120, explain=hosts.tail)
    assert quarantine(hosts) is None
    release.touch()
    assert hosts.wait_state(run_id)["state"] == "succeeded"
    assert_the_curve_has_no_break(hosts, run_id)


def begun_test(hosts: Hosts, node: str) -> Any:
    """None while the node ends what it still has of an attempt that was lost: its devices are in use until then."""
    answer = hosts.request("POST", f"/api/nodes/{node}/test")
    return None if answer.status_code == 409 else answer.raise_for_status().json()


def quarantine(hosts: Hosts) -> Any:
    """The quarantine of the host that flaps, and of no other."""
    first, second, third = (node["quarantine"] for node in hosts.get("/api/nodes"))
    assert first is third is None
    return second


def state(hosts: Hosts, run_id: str) -> tuple[int, str]:
    run = hosts.run(run_id)
    return run["attempt"], run["state"]


def steps_of(hosts: Hosts, run_id: str, attempt: int) -> list[Any]:
    points: list[Any] = hosts.get(f"/api/runs/{run_id}/metrics?name=train/loss&attempt={attempt}").get("train/loss", [])
    return points
