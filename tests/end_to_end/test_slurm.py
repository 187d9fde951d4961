"""Runs of pool slurm on a real cluster: submitted, waited for, trained, stopped, and what breaks them."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.product import contents_below, wait_for
from tests.end_to_end.slurm import Slurm, SlurmProduct, why_not

pytestmark = pytest.mark.real

UNTIL_TOLD = Path(__file__).parent / "scripts" / "until_told.py"
SAVES = Path(__file__).parent / "scripts" / "saves_when_told.py"
TOKEN = "hf_AbCdEfGhIjKlMn"
LIVE = ("RUNNING", "COMPLETING")
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


def job_output(site: SlurmProduct) -> str:
    """What the workers of all jobs have printed."""
    return "\n".join(path.read_text() for path in (site.data / "gateway/slurm").glob("*/job-*.log"))


def texts(site: SlurmProduct, run_id: str) -> list[str]:
    return [entry["text"] for entry in site.get(f"/api/runs/{run_id}/history")]


def test_a_run_trains_on_two_nodes_that_slurm_gives_it(site: SlurmProduct, slurm: Slurm, tmp_path: Path) -> None:
    """It waits while the cluster is full, and says so in words; then it trains and hands over its checkpoint.

    Its secret is in none of Slurm's files, and afterwards in none of ours."""
    site.request("PUT", "/api/secrets/HF_TOKEN", json={"value": TOKEN}).raise_for_status()
    somebody = slurm.fill()
    release = tmp_path / "told"
    run_id = site.launch(UNTIL_TOLD, args=[str(release)], secrets=["HF_TOKEN"], **TWO_NODES)
    said = wait_for(
        lambda: (text := site.run(run_id)["waiting_for"]) and "resources" in text and text, "Slurm's reason"
    )
    (job,) = slurm.jobs_of(run_id)
    assert said == f"Slurm: waiting for resources (job {job}, partition cpu)"
    slurm.ask("scancel", somebody)
    site.wait_state(run_id, "running")
    assert {node["name"] for node in site.get("/api/nodes") if node["slots"]} == {"n0", "n1"}
    release.touch()
    ended = site.wait_state(run_id)
    assert ended["state"] == "succeeded", (ended, texts(site, run_id))
    assert [c["name"] for c in site.get(f"/api/runs/{run_id}/checkpoints")] == ["work/last.pt"]
    ended_as = wait_for(lambda: (state := slurm.state(job)) not in LIVE and state, "the job to end by itself")
    assert ended_as == "COMPLETED", job_output(site)
    assert f"Slurm job {job} runs on n[0-1]" in texts(site, run_id)
    for rank in (0, 1):
        log = site.request("GET", f"/api/runs/{run_id}/logs?rank={rank}&stream=out").text
        assert f"logged in with {'*' * len(TOKEN)}\n" in log
    contents = [(site.log, site.log.read_bytes()), *contents_below(site.data, slurm.folder)]
    assert [path for path, content in contents if TOKEN.encode() in content] == []


@pytest.mark.long
def test_a_node_in_quarantine_gets_no_job_until_it_is_released(
    site: SlurmProduct, slurm: Slurm, tmp_path: Path
) -> None:
    release = tmp_path / "told"
    release.touch()
    first = site.launch(UNTIL_TOLD, args=[str(release)], **TWO_NODES)
    assert site.wait_state(first)["state"] == "succeeded", texts(site, first)
    with closing(sqlite3.connect(site.data / "rankzero.db", timeout=30)) as store, store:
        row = ("slurm/n0", "", 1.0, "2 attempts failed because of this node")
        store.execute("insert into quarantines (machine, device, since, why) values (?, ?, ?, ?)", row)
    (gateway,) = (node for node in site.get("/api/nodes") if node["pool"] == "slurm")
    assert "New jobs leave out n0, which is in quarantine: 2 attempts" in gateway["left_out"][0]
    second = site.launch(UNTIL_TOLD, args=[str(release)], **TWO_NODES | {"nodes": 1})
    assert site.wait_state(second)["state"] == "succeeded", texts(site, second)
    (job,) = slurm.jobs_of(second)
    assert "ExcNodeList=n0" in slurm.ask("scontrol", "show", "job", job)
    assert f"Slurm job {job} runs on n1" in texts(site, second)
    assert site.request("POST", "/api/nodes/n0/release").status_code == 200
    third = site.launch(UNTIL_TOLD, args=[str(release)], **TWO_NODES)
    assert site.wait_state(third)["state"] == "succeeded", texts(site, third)


def test_a_job_that_slurm_refuses_fails_in_sbatchs_own_words(site: SlurmProduct, slurm: Slurm) -> None:
    run_id = site.launch(UNTIL_TOLD, slurm={"partition": "nope"}, **TWO_NODES)
    ended = site.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "launch failed")
    assert ended["message"] == ("Slurm refused the job: Batch job submission failed: Invalid partition name specified.")
    assert slurm.jobs_of(run_id) == []


def test_a_stop_takes_a_waiting_job_out_of_slurm(site: SlurmProduct, slurm: Slurm) -> None:
    somebody = slurm.fill()
    run_id = site.launch(UNTIL_TOLD, args=["/nonexistent"], **TWO_NODES)
    (job,) = wait_for(lambda: slurm.jobs_of(run_id), "the job")
    assert site.request("POST", f"/api/runs/{run_id}/stop").status_code == 200
    assert site.wait_state(run_id)["state"] == "stopped"
    wait_for(lambda: slurm.state(job) == "CANCELLED", "the job to be cancelled")
    slurm.ask("scancel", somebody)


@pytest.mark.long
def test_a_stop_ends_the_ranks_and_then_the_job(site: SlurmProduct, slurm: Slurm) -> None:
    run_id = site.launch(UNTIL_TOLD, args=["/nonexistent"], **TWO_NODES)
    site.wait_step(run_id, 5)
    assert site.request("POST", f"/api/runs/{run_id}/stop").status_code == 200
    assert site.wait_state(run_id)["state"] == "stopped"
    wait_for(slurm.is_quiet, "the job to be over")
    assert not site.ranks(run_id)
    assert not [p for p in site.processes() if "--only-attempt" in p.cmdline()]
    assert slurm.state(slurm.jobs_of(run_id)[0]) in ("COMPLETED", "FAILED"), "it needed no scancel"


@pytest.mark.long
def test_two_runs_train_at_once_and_one_on_each_node(site: SlurmProduct, slurm: Slurm, tmp_path: Path) -> None:
    release = tmp_path / "told"
    runs = [site.launch(UNTIL_TOLD, args=[str(release)], **TWO_NODES) for _ in range(2)]
    for run_id in runs:
        site.wait_state(run_id, "running")
    release.touch()
    for run_id in runs:
        assert site.wait_state(run_id)["state"] == "succeeded", texts(site, run_id)
        assert len(slurm.jobs_of(run_id)) == 1


@pytest.mark.long
@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_gateway_that_is_killed_takes_its_jobs_up_again(
    site: SlurmProduct, slurm: Slurm, tmp_path: Path, state: str
) -> None:
    """Also when it died after sbatch and before it had written the job's id down."""
    release = tmp_path / "told"
    somebody = slurm.fill() if state == "PENDING" else None
    run_id = site.launch(UNTIL_TOLD, args=[str(release)], **TWO_NODES)
    (job,) = wait_for(lambda: slurm.jobs_of(run_id), "the job")
    wait_for(lambda: slurm.state(job) == state, state)
    site.end_gateway(signal.SIGKILL)
    for note in (site.data / "gateway" / "jobs").glob("*.json"):
        note.write_text(json.dumps(json.loads(note.read_text()) | {"job_id": None}))
    if somebody:
        wait_for(lambda: "no contact with the gateway login" in site.run(run_id)["waiting_for"], "the words")
        slurm.ask("scancel", somebody)
    site.start_gateway()
    site.wait_state(run_id, "running")
    release.touch()
    ended = site.wait_state(run_id)
    assert ended["state"] == "succeeded", (ended["message"], ended["error"], texts(site, run_id))
    assert slurm.jobs_of(run_id) == [job]
    wait_for(lambda: not list((site.data / "gateway" / "jobs").glob("*.json")), "the end to be heard")


@pytest.mark.long
def test_a_job_cancelled_in_slurm_is_told_and_can_be_resumed(site: SlurmProduct, slurm: Slurm, tmp_path: Path) -> None:
    release = tmp_path / "told"
    run_id = site.launch(UNTIL_TOLD, args=[str(release)], **TWO_NODES)
    site.wait_step(run_id, 5)
    (job,) = slurm.jobs_of(run_id)
    slurm.ask("scancel", job)
    ended = site.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "killed"), ended
    assert ended["message"] == f"The Slurm job {job} was cancelled in Slurm, not by Rankzero."
    wait_for(slurm.is_quiet, "the job to be over")
    assert not site.ranks(run_id)
    release.touch()
    assert site.request("POST", f"/api/runs/{run_id}/resume").status_code == 200
    ended = site.wait_state(run_id)
    assert ended["state"] == "succeeded", (ended, texts(site, run_id))
    assert len(slurm.jobs_of(run_id)) == 2


@pytest.mark.long
@pytest.mark.parametrize("minutes", [1, 2])
def test_a_job_at_its_time_limit_is_told_so_and_resumes_from_its_checkpoint(
    site: SlurmProduct, slurm: Slurm, minutes: int
) -> None:
    """One of two minutes is warned and saves when it is told; one of a minute is just ended by Slurm."""
    run_id = site.launch(SAVES, slurm={"time_limit": str(minutes)}, args=["{resume}"], **TWO_NODES)
    ended = site.wait_state(run_id, timeout_s=360)
    assert (ended["state"], ended["reason"]) == ("failed", "time limit"), (ended, texts(site, run_id))
    assert "time limit" in ended["message"] and "esume it" in ended["next_step"]
    wait_for(slurm.is_quiet, "the job to be over")
    assert not site.ranks(run_id)
    assert site.get(f"/api/runs/{run_id}/checkpoints"), "what it saved is on the dashboard"
    assert site.request("POST", f"/api/runs/{run_id}/resume").status_code == 200
    site.wait_state(run_id, "running")
    assert any("resumed from work/" in text for text in texts(site, run_id))
    site.request("POST", f"/api/runs/{run_id}/stop")
    assert site.wait_state(run_id)["state"] == "stopped"


@pytest.mark.long
def test_gpus_are_asked_for_where_the_partition_has_some(tmp_path: Path) -> None:
    """Slurm's own view of them; nothing trains, for these are no GPUs."""
    if reason := why_not():
        pytest.skip(reason)
    cluster = Slurm(tmp_path / "slurm", gpus=2)
    site = SlurmProduct(tmp_path / "data", cluster)
    try:
        cluster.start()
        site.start()
        somebody = cluster.fill()
        run_id = site.launch(UNTIL_TOLD, pool="slurm", nodes=2, gpus_per_node=2)
        (job,) = wait_for(lambda: cluster.jobs_of(run_id), "the job")
        asked = cluster.ask("scontrol", "--oneliner", "show", "job", job)
        assert "TresPerNode=gres:gpu:2" in asked and "NumNodes=2" in asked, asked
        cluster.ask("scancel", somebody)
        assert site.stop() == 0
    finally:
        site.clean_up()
        cluster.clean_up()
