"""Places in runs for processes that watch: whoever comes first makes the run, the others join, wait or are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from db import acting
from db.attempts import attempt_queries
from db.findings import findings
from db.people import audit
from db.people.audit import AuditFilter
from db.runs import deletion, run_queries, run_requests
from domain.messages import State
from domain.people.rights import Denied, Rights
from domain.people.roles import Role
from tests.db.watched_hosts import Host, watch_request, watched

MARA = Rights("mara", everywhere=Role.MEMBER)
JO = Rights("jo", everywhere=Role.MEMBER)


def history(store, run_id: str) -> list[str]:
    return [line.text for line in run_queries.history(store, run_id)]


def attempt_numbers(store, run_id: str) -> list[int]:
    return sorted(attempt.number for attempt in attempt_queries.attempts(store, run_id))


@pytest.mark.both_stores
def test_the_first_process_makes_the_run_as_it_was_started(store):
    with acting.acting(MARA):
        first = watched(store, name="resnet", tags=["a", "b"], ranks_here=2, scheduler="Slurm job 4711")
    run = first.run
    assert (first.place.place, run.id, run.name, run.by) == ("joined", first.request.run_id, "resnet", "mara")
    assert (run.state, run.world_size, run.created_at, run.started_at) == (State.STARTING, 2, 90.0, 90.0)
    assert run.tags == ["a", "b"] and run.spec.workdir == "/home/mara/vision" and run.spec.args == ["--epochs", "3"]
    assert run.watched is not None
    assert run.watched.origin == "gpu-3, started by mara (Slurm job 4711)"
    assert run.watched.command == "torchrun --nproc-per-node 2 train.py --epochs 3"
    assert history(store, run.id) == ["watched: started on gpu-3 by mara"]
    entry = audit.entries(store, AuditFilter(), 1)[0]
    assert (entry.action, entry.by, entry.object) == ("watched", "mara", f"run {run.id}")
    assert first.assignment.action == "run" and first.assignment.may_start
    assert first.assignment.devices == ["GPU-0", "GPU-1"]


def test_a_process_that_asks_again_has_the_same_place_with_another_token(store):
    first = watched(store)
    before = first.place
    again = first.ask()
    assert (again.run_id, again.fence, again.node_id) == (before.run_id, before.fence, before.node_id)
    assert again.node_token != before.node_token
    assert attempt_numbers(store, before.run_id) == [1]


def test_an_id_that_is_taken_gives_the_run_another_one(store):
    first = watched(store)
    second = watched(store, run_id=first.place.run_id)
    assert second.place.place == "joined" and second.place.run_id != first.place.run_id


def test_processes_of_one_key_share_a_run(store):
    hosts = [watched(store, host=f"gpu-{n}", key="4711.0", process=n, processes=2, ranks_here=1) for n in (0, 1)]
    assert len({host.place.fence for host in hosts}) == 1
    assert [host.assignment.node_rank for host in hosts] == [0, 1]
    assert hosts[0].run.world_size == 2 and hosts[0].run.watched.processes == 2
    assert history(store, hosts[0].place.run_id)[-1] == "process 1 joined from gpu-1"


def test_processes_without_a_number_get_the_first_free_places(store):
    hosts = [watched(store, key="k", processes=3) for _ in range(3)]
    assert [host.assignment.node_rank for host in hosts] == [0, 1, 2]
    assert watched(store, key="k", processes=3).place.place == "refused"


@pytest.mark.both_stores
def test_two_processes_at_the_same_moment_make_one_run(store):
    hosts = [Host(store, watch_request(key="k", process=n, processes=4)) for n in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda host: host.ask(), hosts))
    assert len({host.place.run_id for host in hosts}) == 1
    assert sorted(host.assignment.node_rank for host in hosts) == [0, 1, 2, 3]


def test_a_key_is_its_persons_and_its_projects_own(store):
    with acting.acting(MARA):
        of_mara = watched(store, key="k", process=0)
        elsewhere = watched(store, key="k", process=1, project="speech")
    with acting.acting(JO):
        of_jo = watched(store, key="k", process=1)
        foreign = Host(store, of_mara.request)
        assert foreign.ask().place == "refused"
        assert "somebody else" in foreign.place.message
    assert len({of_mara.place.run_id, elsewhere.place.run_id, of_jo.place.run_id}) == 3


def test_a_process_that_comes_twice_is_refused_with_the_place_of_the_other(store):
    first = watched(store, key="k", process=3, host="gpu-7")
    second = watched(store, key="k", process=3, host="gpu-8").place
    assert second.place == "refused"
    assert f"Process 3 of run {first.place.run_id} is already watched, on gpu-7 (process id" in second.message
    assert "--run KEY" in second.message


def test_a_restarted_process_waits_for_the_others_and_is_then_the_next_attempt(store):
    first, other = (watched(store, key="k", process=n, processes=2, is_lasting=True) for n in (0, 1))
    first.report("failed", message="It broke.")
    restarted = watched(store, key="k", process=0, processes=2, is_lasting=True, started_at=101.0)
    assert restarted.place.place == "waits" and "others of its processes still run" in restarted.place.message
    other.report("failed", message="It broke, too.")
    assert restarted.ask().place == "joined"
    assert (restarted.run.attempt, restarted.run.id) == (2, first.place.run_id)
    assert "watched again: started on gpu-3 by mara" in history(store, first.place.run_id)


def test_a_key_that_does_not_last_makes_a_new_run_after_the_end(store):
    first = watched(store, key="localhost:29500")
    first.report("succeeded")
    second = watched(store, key="localhost:29500", started_at=101.0)
    assert second.place.run_id != first.place.run_id and second.run.attempt == 1


def test_a_process_heard_of_late_still_belongs_to_the_attempt_in_which_it_began(store):
    first = watched(store, key="k", process=0, processes=2, is_lasting=True)
    first.report("running")
    first.now = 150.0
    assert first.report("succeeded") == State.SUCCEEDED
    late = watched(store, now=3600.0, key="k", process=1, processes=2, is_lasting=True, started_at=91.0)
    assert late.place.fence == first.place.fence
    assert late.report("failed", message="It broke.") == State.FAILED
    assert attempt_numbers(store, first.place.run_id) == [1]


def test_a_process_on_a_lost_node_makes_room_for_its_restart(store):
    first = watched(store, key="k", process=0, is_lasting=True)
    first.report("running")
    silent = watched(store, now=115.0, key="k", process=0, is_lasting=True, host="gpu-9", started_at=110.0)
    assert silent.place.place == "waits" and "no contact with gpu-3" in silent.place.message
    silent.now = 200.0
    assert silent.ask().place == "joined"
    assert silent.run.attempt == 2
    (lost, _) = sorted(attempt_queries.attempts(store, first.place.run_id), key=lambda one: one.number)
    assert lost.state == State.FAILED and "taken up again when it is back" in lost.message


def test_a_deleted_run_gives_no_place_any_more(store):
    first = watched(store)
    first.report("succeeded")
    deletion.delete(store, first.place.run_id, 110.0)
    assert first.ask().place == "refused"
    assert "was deleted" in first.place.message


def test_who_may_not_launch_gets_no_place(store):
    with acting.acting(Rights("eve", everywhere=Role.VIEWER)), pytest.raises(Denied):
        watched(store)


def test_secrets_in_the_command_are_masked(store):
    first = watched(store, argv=["python", "train.py", "--api-key", "hunter2hunter2"])
    assert "hunter2" not in str(first.run) and "--api-key" in first.run.watched.command


# The state over the processes that came, the ranks that they see, and what nobody here does to them.


def test_the_run_runs_while_one_of_its_processes_does(store):
    hosts = [watched(store, key="k", process=n, processes=3) for n in (0, 1)]
    assert hosts[0].report("running") == State.RUNNING
    assert hosts[0].report("failed", message="It broke.") == State.RUNNING
    assert hosts[1].assignment.action == "run"
    hosts[1].report("running")
    assert hosts[1].report("succeeded") == State.FAILED
    assert hosts[0].run.message == "It broke."


def test_the_world_is_what_the_ranks_see(store):
    only = watched(store)
    only.report("running", ranks=[0, 1, 2, 3], world_size=4)
    assert (only.run.world_size, only.run.nodes) == (4, 1)
    two = [watched(store, key="k", process=n, processes=2) for n in (0, 1)]
    two[0].report("running", ranks=[0], world_size=16)
    assert (two[0].run.world_size, two[0].run.nodes) == (16, 2)


def test_processes_with_worlds_of_their_own_are_a_finding(store):
    alone = [watched(store, key="k", process=n, processes=2, host=f"gpu-{n}") for n in (0, 1)]
    alone[0].report("running", ranks=[0, 1], world_size=2)
    assert findings.findings(store, alone[0].place.run_id) == []
    alone[1].report("running", ranks=[0, 1], world_size=2)
    (finding,) = findings.findings(store, alone[0].place.run_id)
    assert finding.kind == "worlds differ" and "together they have 4 ranks" in finding.evidence
    assert "localhost" in finding.meaning and "MASTER_ADDR" in finding.fix


def test_an_end_that_is_told_late_counts_from_when_it_was(store):
    late = watched(store, now=7200.0, started_at=90.0)
    late.report("running")
    late.report("succeeded", ended_at=450.0)
    assert (late.run.started_at, late.run.ended_at) == (90.0, 450.0)


def test_a_host_whose_clock_is_ahead_began_now(store):
    early = watched(store, started_at=5000.0)
    assert early.run.created_at == 100.0


def test_nothing_is_ever_done_for_its_policy(store):
    spec = watched(store).run.spec
    assert (spec.max_restarts, spec.elastic, spec.on_hang, spec.torchrun_restarts) == (0, False, "report", 0)
    first = watched(store)
    first.report("failed", message="It broke.")
    assert attempt_numbers(store, first.place.run_id) == [1]


def test_only_a_person_stops_it(store):
    first = watched(store)
    first.report("running")
    run_requests.request_stop(store, first.place.run_id, 120.0)
    assert first.assignment.action == "stop"
