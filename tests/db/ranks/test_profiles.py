"""A profile is requested of all ranks for the same steps, answered rank by rank, and always comes to an end."""

from __future__ import annotations

import pytest

from db.exceptions import NoSuchProfile, WrongState
from db.ranks.profiles import flame, profile, profile_reported, request, trace_file
from db.tasks import task_reports
from db.tasks.desired_state import assignments
from domain.messages import State
from domain.profiles.records import RankProfile
from tests.db import task_streams


@pytest.fixture
def run(cluster) -> tuple[str, int]:
    """(id, fence) of a run with two ranks that step, on one node."""
    run_id = cluster.launch(gpus_per_node=2)
    (assignment,) = assignments(cluster.store, cluster.node_id)
    cluster.report(assignment.fence, "running")
    series = {f"rank{rank}/step_time_s": [(40 + rank, 0.5, cluster.now)] for rank in (0, 1)}
    cluster.points(assignment.fence, 0, 10, series, source="probe")
    return run_id, assignment.fence


def answer(cluster, fence: int, profile_id: str, rank: int, **outcome) -> None:
    recorded = {"state": "recorded", "file": f"profiles/{profile_id}/trace{rank}.json.gz", "size_bytes": 5}
    report = RankProfile(profile=profile_id, rank=rank, **(recorded | outcome))
    profile_reported(cluster.store, cluster.node_id, fence, 0, report)


def store_trace(cluster, fence: int, profile_id: str, rank: int) -> int:
    path = f"profiles/{profile_id}/trace{rank}.json.gz"
    file_id, _ = task_streams.file_for_append(cluster.store, cluster.node_id, fence, 0, path, 0)
    task_reports.file_grew(cluster.store, file_id, 0, 5)
    return file_id


def test_all_ranks_get_the_same_steps_and_the_profile_is_recorded_once_its_traces_are_stored(cluster, run):
    (run_id, fence), store, now = run, cluster.store, cluster.now
    profile_id = request(store, run_id, 10, [], now)
    (assignment,) = assignments(store, cluster.node_id)
    assert assignment.profile is not None and (assignment.profile.id, assignment.profile.ranks) == (profile_id, [0, 1])
    assert (assignment.profile.first_step, assignment.profile.steps) == (53, 10), "four seconds ahead of rank 1's step"
    answer(cluster, fence, profile_id, 1, flame=[(0, "train", 1.0)])
    assert assignments(store, cluster.node_id)[0].profile.ranks == [0]
    assert profile(store, run_id, profile_id, now).state == "recording"
    answer(cluster, fence, profile_id, 0, state="failed", why="it has a profiler of its own")
    assert assignments(store, cluster.node_id)[0].profile is None
    assert profile(store, run_id, profile_id, now).state == "recording", "its trace has not arrived"
    file_id = store_trace(cluster, fence, profile_id, 1)
    view = profile(store, run_id, profile_id, now)
    assert (view.state, [file.rank for file in view.files]) == ("recorded", [1])
    assert trace_file(store, run_id, profile_id, 1) == (file_id, 5)
    assert flame(store, run_id, profile_id, 1) == [[0, "train", 1.0]]
    with pytest.raises(NoSuchProfile):
        trace_file(store, run_id, profile_id, 0)


def test_a_second_request_waits_and_a_rank_that_never_answers_times_out(cluster, run):
    (run_id, _), store = run, cluster.store
    profile_id = request(store, run_id, 10, [0], cluster.now)
    with pytest.raises(WrongState, match="still records steps 53 to 62"):
        request(store, run_id, 10, [1], cluster.now)
    view = profile(store, run_id, profile_id, cluster.now + 1000)
    assert (view.state, view.outcomes[0].why) == ("timed out", "it did not answer in time")
    assert request(store, run_id, 10, [1], cluster.now + 1000) != profile_id


def test_an_end_of_the_run_ends_the_profile(cluster, run):
    (run_id, fence), store = run, cluster.store
    profile_id = request(store, run_id, 10, [0], cluster.now)
    cluster.report(fence, State.SUCCEEDED)
    view = profile(store, run_id, profile_id, cluster.now)
    assert (view.state, view.outcomes[0].why) == ("failed", "the run ended before its trace was written")
    with pytest.raises(WrongState, match="only ranks that train"):
        request(store, run_id, 10, [0], cluster.now)


def test_ranks_that_do_not_step_are_refused(cluster, run):
    (run_id, _), store = run, cluster.store
    with pytest.raises(WrongState, match="Rank 7 of run"):
        request(store, run_id, 10, [0, 7], cluster.now)
    with pytest.raises(WrongState, match="1 to 200 steps"):
        request(store, run_id, 0, [0], cluster.now)
