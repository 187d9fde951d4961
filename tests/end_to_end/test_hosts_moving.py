"""Checkpoints move: a run that is resumed on another host finds its checkpoint there, as it was."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.host_runs import assert_the_curve_has_no_break, history, hosts_of, saved
from tests.end_to_end.hosts import Hosts, why_not
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parent / "scripts" / "resumes.py"
BALLAST_MIB = 12


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    made = Hosts(2, tmp_path_factory.mktemp("hosts"))
    try:
        made.start()
        yield made
    finally:
        made.clean_up()


@pytest.mark.long
def test_a_run_resumed_on_another_host_fetches_its_checkpoint_there_first(hosts: Hosts, tmp_path: Path) -> None:
    release = tmp_path / "told"
    move_to(hosts, 0)
    run_id = hosts.launch(SCRIPT, args=[str(release), str(BALLAST_MIB)], gpus_per_node=1)
    wait_for(lambda: saved(hosts, run_id), "a checkpoint", explain=hosts.tail)
    hosts.request("POST", f"/api/runs/{run_id}/stop")
    hosts.wait_state(run_id, "stopped")
    move_to(hosts, 1)
    hosts[0].send_slowly(3_000_000)
    hosts.request("POST", f"/api/runs/{run_id}/resume")
    progress = wait_for(lambda: fetching(hosts, run_id), "the first of it", explain=hosts.tail)
    assert re.fullmatch(rf"host1 fetches the checkpoint \S+: \d+ MiB of {BALLAST_MIB} MiB", progress)
    hosts.wait_state(run_id, "running")
    release.touch()
    assert hosts.wait_state(run_id)["state"] == "succeeded"
    assert [hosts_of(hosts, run_id, number) for number in (1, 2)] == [[hosts[0]], [hosts[1]]]
    assert any("host1 has fetched the checkpoint" in line for line in history(hosts, run_id))
    assert_the_curve_has_no_break(hosts, run_id)
    (fetched,) = (hosts[1].data / f"runs/{run_id}/attempts/2/node0/resume").iterdir()
    assert hashlib.sha256(fetched.read_bytes()).hexdigest() in {each["sha256"] for each in saved(hosts, run_id)}
    assert hosts.left_of(run_id) == []


def move_to(hosts: Hosts, number: int) -> None:
    """New runs start on this host alone."""
    for host in hosts.hosts:
        command = "undrain" if host is hosts[number] else "drain"
        answer = hosts.request("POST", f"/api/nodes/{host.name}/{command}")
        assert answer.status_code == 200, answer.text


def fetching(hosts: Hosts, run_id: str) -> Any:
    said = hosts.run(run_id)["waiting_for"] or ""
    return said if "fetches" in said else None
