"""When a node does what: to the second, on virtual time."""

from __future__ import annotations

import pytest

from domain.messages import Reason
from tests.worker.virtual_node import events, printing, stubborn, then, waiting
from worker.attempt.attempt import START_LIMIT_S, STARTS
from worker.attempt.supervision import GRACE_S
from worker.attempt.uploader import UNWATCHED_EVERY_S
from worker.monitor.hangs import PATIENCE_S
from worker.monitor.reporter import EVERY_S
from worker.session.server_session import LONGEST_PAUSE_S

A_STEP_S = 0.5
"""More than passes between two looks of a worker or a supervisor."""


@pytest.mark.parametrize("grace_s", [0.0, 5.0, 60.0])
def test_who_does_not_stop_is_killed_when_its_grace_is_over(virtual_node, grace_s):
    assignment = virtual_node.assignment(virtual_node.script(stubborn))
    virtual_node.assign(assignment)
    virtual_node.until_ready()
    virtual_node.assign(assignment.model_copy(update={"action": "stop", "grace_s": grace_s}))
    assert virtual_node.until_settled().state == "stopped"
    state = virtual_node.supervisor()
    assert state["ended_at"] - state["stop_requested_at"] == pytest.approx(grace_s, abs=A_STEP_S)
    assert state["killed"] == [state["launcher_pid"]] and virtual_node.ranks == []


def test_a_second_order_shortens_the_grace(virtual_node):
    assignment = virtual_node.assignment(virtual_node.script(stubborn), action="run")
    virtual_node.assign(assignment)
    virtual_node.until_ready()
    virtual_node.daemon.shut_down(600.0)
    virtual_node.time.advance(10.0)
    assert virtual_node.supervisor()["state"] == "stopping" and virtual_node.ranks
    virtual_node.daemon.shut_down(0.0)
    virtual_node.until(lambda: not virtual_node.ranks, 1.0)
    assert virtual_node.until_settled().state == "stopped"


def steps(process, count=20):
    """Make a step a second, then none."""
    for step in range(1, count + 1):
        process.note_step(step)
        process.sleep(1.0)
    process.note_step(count, "waiting", last_step_at=process.wall() - 1.0)
    process.sleep(3600.0)


def hang_of(node):
    return [finding for finding in node.server.findings_of.get(1, []) if finding.kind == "hung"]


def test_a_hang_is_told_a_minute_after_the_last_step(virtual_node):
    virtual_node.assign(virtual_node.assignment(virtual_node.script(steps)))
    virtual_node.until_ranks()
    virtual_node.time.advance(20.0 + PATIENCE_S - 5.0)
    assert not hang_of(virtual_node)
    virtual_node.until(lambda: hang_of(virtual_node), 5.0 + 2 * EVERY_S + A_STEP_S)
    assert "after step 20" in hang_of(virtual_node)[0].evidence
    assert virtual_node.ranks, "it is reported, and goes on"


def test_a_hung_run_is_ended_where_its_spec_says_so(virtual_node):
    spec = {"on_hang": "end", "hang_after_s": 30, "stop_grace_s": 5}
    virtual_node.assign(virtual_node.assignment(virtual_node.script(steps), spec=spec))
    virtual_node.until_ranks()
    virtual_node.time.advance(45.0)
    assert virtual_node.ranks
    end = virtual_node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.HUNG)
    state = virtual_node.supervisor()
    assert 50.0 <= state["ended_at"] - state["running_at"] <= 50.0 + 2 * EVERY_S + 2.0


def test_a_server_that_is_away_for_long_is_asked_a_few_times_a_minute_and_gets_everything(virtual_node):
    virtual_node.assign(virtual_node.assignment(virtual_node.script(then(events(range(20), 60.0), waiting))))
    virtual_node.until_ranks()
    virtual_node.server.is_away = True
    virtual_node.time.advance(60.0)
    calls = virtual_node.server.calls
    virtual_node.time.advance(180.0)
    per_minute = (virtual_node.server.calls - calls) / 3
    assert 60 / LONGEST_PAUSE_S <= per_minute <= 2 * 60 / LONGEST_PAUSE_S, per_minute
    virtual_node.server.is_away = False
    virtual_node.time.advance(LONGEST_PAUSE_S + 5.0)
    assert [point[0] for point in virtual_node.server.series["train/loss"]] == list(range(5))


def test_ranks_whose_supervisor_was_killed_have_some_seconds_to_save(virtual_node):
    virtual_node.assign(virtual_node.assignment(virtual_node.script(stubborn)))
    virtual_node.until_ready()
    virtual_node.machine.supervisors[0].kill()
    virtual_node.time.advance(GRACE_S - A_STEP_S)
    assert virtual_node.ranks and virtual_node.server.end() is None
    virtual_node.time.advance(2 * A_STEP_S)
    assert not virtual_node.ranks
    assert virtual_node.until_settled().reason == Reason.KILLED


def test_a_supervisor_that_does_not_begin_is_started_again_after_a_minute(virtual_node):
    virtual_node.machine.supervisors_hang = True
    virtual_node.assign(virtual_node.assignment(virtual_node.script(waiting)))
    virtual_node.time.advance(START_LIMIT_S - 1.0)
    assert len(virtual_node.machine.supervisors) == 1
    virtual_node.time.advance(2.0)
    assert len(virtual_node.machine.supervisors) == 2
    virtual_node.time.advance((STARTS - 1) * (START_LIMIT_S + 1.0))
    end = virtual_node.server.end()
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert len(virtual_node.machine.supervisors) == STARTS


def test_output_arrives_within_seconds_also_while_nobody_watches(virtual_node):
    virtual_node.assign(virtual_node.assignment(virtual_node.script(then(printing("hello"), waiting))))
    virtual_node.until_ready()
    virtual_node.until(lambda: virtual_node.server.text("logs/rank0.out") == "hello\n", 5.0 + A_STEP_S)


def logging_late(process):
    process.sleep(20.0)
    events(range(20), 1.0)(process)


def test_a_curve_begins_at_once_and_goes_on_every_few_seconds_while_nobody_watches(virtual_node):
    virtual_node.assign(virtual_node.assignment(virtual_node.script(logging_late)))
    virtual_node.until_ranks()
    began = virtual_node.time.now()
    virtual_node.until(lambda: "train/loss" in virtual_node.server.series)
    assert virtual_node.time.now() - began == pytest.approx(20.0, abs=2 * A_STEP_S)
    first = len(virtual_node.server.series["train/loss"])
    virtual_node.time.advance(UNWATCHED_EVERY_S - 2 * A_STEP_S)
    assert len(virtual_node.server.series["train/loss"]) == first
    virtual_node.time.advance(4 * A_STEP_S)
    assert len(virtual_node.server.series["train/loss"]) >= first + 4
