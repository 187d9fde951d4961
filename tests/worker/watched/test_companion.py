"""What becomes of a watched command's data, whatever happens to server, front and companion; on virtual time."""

from __future__ import annotations

import os
import signal

import pytest

from domain.messages import Reason
from domain.watching.messages import WatchAnswer
from tests.worker.virtual_node import checkpoint, events, failing, nothing, printing, stubborn, then, waiting
from tests.worker.watched.watching import GUEST, OWN_RUN, PERSON, REFUSED, REMOVED, RUN, UNKNOWN, Watching
from worker.watched.companion import ASK_AGAIN_AFTER_S, PATIENCE_S
from worker.watched.place import read_place


@pytest.fixture
def watching(tmp_path):
    under_test = Watching(tmp_path)
    with under_test.time:
        yield under_test


def let_end(watching: Watching) -> None:
    (watching.cwd / "ready").unlink()


def series(watching: Watching) -> list[int]:
    return [point[0] for point in watching.server.series.get("train/loss", [])]


def test_a_command_is_a_run_from_its_first_second_and_leaves_nothing(watching):
    watching.watch(then(events(), printing("done"), waiting))
    watching.until_registered()
    (request,) = watching.server.asked_for
    assert (request.run_id, request.command.account, request.facts.hostname) == (OWN_RUN, "mara", os.uname().nodename)
    watching.until(lambda: watching.progress.url == f"http://server/run?id={RUN}")
    assert watching.progress.state == "registered"
    let_end(watching)
    assert watching.until_over()
    assert watching.server.states() == ["starting", "running", "succeeded"]
    assert series(watching) == [0, 1, 2, 3, 4]
    assert watching.server.text("logs/rank0.out") == "done\n"
    assert watching.server.tokens == [GUEST] and watching.server.loads[-1].leaving
    assert [*watching.folder.parent.iterdir()] == []  # it stays, for the fronts that begin just then


def test_a_command_that_fails_has_its_reason(watching):
    watching.watch(failing("ValueError: no such layer"))
    assert watching.until_over()
    end = watching.server.end()
    assert (end.state, end.reason) == ("failed", Reason.SCRIPT_ERROR)
    assert "no such layer" in end.message


@pytest.mark.parametrize("late_s", [5.0, 600.0])
def test_a_server_that_appears_later_gets_everything_once(watching, late_s):
    watching.server.is_away = True
    watching.watch(then(events(), checkpoint("model.pt"), waiting))
    watching.time.advance(late_s)
    assert watching.progress.state == "away" and watching.server.asked_for == []
    assert list((watching.attempt / "outbox").iterdir()), "the checkpoint is copied meanwhile"
    watching.server.is_away = False
    watching.until_registered()
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [0, 1, 2, 3, 4]
    assert [one["complete"] for one in watching.server.checkpoints] == [True]


def test_ten_minutes_without_a_network_lose_nothing_and_nobody_asks_for_a_place_again(watching):
    watching.watch(then(events(range(20), pause_s=10.0), waiting))
    watching.until_registered()
    watching.time.advance(15.0)
    watching.server.is_away = True
    watching.time.advance(600.0)
    watching.server.is_away = False
    watching.until(lambda: (watching.cwd / "ready").exists())
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [*range(20)] and len(watching.server.asked_for) == 1


def test_a_replied_answer_that_was_lost_is_asked_for_again_and_changes_nothing(watching):
    watching.server.loses_replies = True
    watching.watch(then(events(), waiting))
    watching.until_registered()
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [0, 1, 2, 3, 4]


def test_where_no_server_is_known_the_data_stays_until_sync_sends_it(watching):
    watching.is_known = False
    watching.watch(then(events(), waiting))
    watching.time.advance(5.0)
    assert watching.progress.message == "No dashboard is known here."
    let_end(watching)
    assert not watching.until_over()
    assert "rankzero sync" in watching.progress.message and watching.progress.total_bytes > 0
    watching.is_known = True
    watching.start_companion(patience_s=10.0)
    watching.until(lambda: len(watching.outcome) == 2)
    assert watching.outcome == [False, True]
    assert watching.server.end().state == "succeeded" and series(watching) == [0, 1, 2, 3, 4]
    assert not watching.folder.exists()


def test_a_server_that_stays_away_is_waited_for_a_minute_after_the_end(watching):
    watching.server.is_away = True
    watching.watch(waiting)
    watching.time.advance(300.0)
    assert watching.outcome == []
    let_end(watching)
    began = watching.time.now()
    assert not watching.until_over()
    assert PATIENCE_S <= watching.time.now() - began <= PATIENCE_S + 10.0


def test_a_server_that_goes_before_the_end_gets_the_rest_by_sync(watching):
    watching.watch(then(waiting, events()))
    watching.until_registered()
    watching.server.is_away = True
    let_end(watching)
    assert not watching.until_over()
    assert watching.progress.state == "away" and read_place(watching.folder) is not None
    watching.server.is_away = False
    watching.start_companion()
    watching.until(lambda: len(watching.outcome) == 2)
    assert watching.outcome[-1] and series(watching) == [0, 1, 2, 3, 4]
    assert len(watching.server.asked_for) == 1, "it has its place"


def test_a_refused_token_stops_nothing_and_one_that_becomes_valid_is_taken(watching):
    watching.server.answer = REFUSED
    watching.watch(then(events(), waiting))
    watching.time.advance(200.0)
    assert (watching.progress.state, watching.progress.message) == ("refused", str(REFUSED))
    assert 2 <= len(watching.server.asked_for) <= 4 and watching.ranks
    watching.server.answer = None
    watching.until_registered()
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [0, 1, 2, 3, 4]


def test_a_process_that_waits_for_the_end_of_the_attempt_before_gets_its_place_then(watching):
    watching.server.answer = WatchAnswer(place="waits", message="Attempt 1 has not ended.")
    watching.watch(waiting)
    watching.time.advance(30.0)
    assert watching.progress.message == "Attempt 1 has not ended." and len(watching.server.asked_for) > 5
    watching.server.answer = None
    watching.until_registered()


def test_a_process_that_comes_twice_is_refused_once_and_its_command_goes_on(watching):
    watching.server.answer = WatchAnswer(place="refused", message="Process 0 of this run is already watched.")
    watching.watch(waiting)
    watching.time.advance(120.0)
    assert len(watching.server.asked_for) == 1 and watching.ranks and watching.outcome == []
    let_end(watching)
    assert not watching.until_over()
    assert watching.progress.state == "refused" and watching.folder.exists()


def test_a_superseded_command_goes_on(watching):
    watching.watch(waiting)
    watching.until_registered()
    watching.server.superseded.add(7)
    watching.server.is_unlisted = True
    watching.server.change()
    watching.time.advance(60.0)
    assert watching.ranks and not (watching.attempt / "stop").exists()
    let_end(watching)
    assert not watching.until_over()
    assert watching.folder.exists(), "the server has not got everything"


@pytest.mark.parametrize("failure", [REMOVED, UNKNOWN], ids=["removed", "unknown"])
def test_a_guest_that_the_server_does_not_know_asks_for_its_place_again(watching, failure):
    watching.watch(then(events(range(3)), waiting))
    watching.until_registered()
    watching.server.failure = failure
    watching.server.change()
    watching.until(lambda: len(watching.server.asked_for) >= 2)
    assert watching.ranks
    watching.server.failure = None
    watching.time.advance(60.0)
    asked = len(watching.server.asked_for)
    let_end(watching)
    assert watching.until_over()
    assert len(watching.server.asked_for) == asked and series(watching) == [0, 1, 2]


def test_a_guest_that_is_never_known_again_does_not_stay_for_ever_after_the_end(watching):
    watching.watch(waiting)
    watching.until_registered()
    watching.server.failure = REMOVED
    watching.server.change()
    let_end(watching)
    assert not watching.until_over()
    assert len(watching.server.asked_for) <= 2 * PATIENCE_S / ASK_AGAIN_AFTER_S


def test_the_end_of_a_removed_guest_asks_with_the_token_of_the_person(watching):
    watching.watch(waiting)
    watching.until_registered()
    tokens = []
    watch = watching.server.watch
    watching.server.watch = lambda request: tokens.append(watching.server.token) or watch(request)
    watching.server.failure = UNKNOWN
    watching.server.change()
    watching.until(lambda: tokens)
    assert tokens[0] == PERSON


def test_stop_ends_the_command(watching):
    watching.watch(waiting)
    watching.until_registered()
    watching.server.change(action="stop")
    assert watching.until_over()
    assert watching.server.end().state == "stopped" and watching.ranks == []


def test_stop_ends_no_command_that_is_only_looked_at(watching):
    watching.watch(waiting, look_only=True)
    watching.until_registered()
    watching.server.change(action="stop")
    watching.time.advance(60.0)
    assert watching.ranks and not (watching.attempt / "stop").exists()


@pytest.mark.parametrize("is_registered", [True, False])
def test_the_processes_of_a_killed_front_are_ended_by_the_companion(watching, is_registered):
    watching.server.is_away = not is_registered
    watching.watch(stubborn)
    watching.time.advance(30.0)
    watching.front.kill()
    watching.until(lambda: not watching.ranks)
    watching.server.is_away = False
    assert watching.until_over()
    end = watching.server.end()
    assert (end.state, end.reason) == ("failed", Reason.KILLED)
    assert end.message == "The `rankzero watch` of its command was killed, and its processes with it."


def test_a_killed_companion_is_followed_by_another_that_sends_everything_once(watching):
    watching.watch(then(events(range(40), pause_s=1.0), checkpoint("model.pt"), waiting))
    watching.until_registered()
    for _ in range(5):
        watching.time.advance(7.0)
        watching.kill_companion()
        watching.time.advance(5.0)
        watching.start_companion()
    watching.until(lambda: (watching.cwd / "ready").exists())
    watching.time.advance(30.0)
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [*range(40)] and len(watching.server.asked_for) == 1
    assert [one["complete"] for one in watching.server.checkpoints] == [True]


def test_a_companion_killed_before_the_server_answered_is_followed_by_another(watching):
    watching.server.is_away = True
    watching.watch(then(events(), waiting))
    watching.time.advance(30.0)
    watching.kill_companion()
    watching.time.advance(5.0)
    watching.start_companion()
    watching.server.is_away = False
    watching.until_registered()
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [0, 1, 2, 3, 4]


def test_a_full_disk_of_ours_delays_the_place_but_not_the_command(watching, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("worker.watched.place.write_whole", full)
        watching.watch(then(events(), waiting))
        watching.time.advance(120.0)
        assert watching.progress.message == "No space left on device" and watching.ranks
    watching.until_registered()
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [0, 1, 2, 3, 4]


def test_a_front_that_takes_its_time_is_not_taken_for_dead(watching):
    watching.machine.supervisors_hang = True
    watching.watch(nothing)
    watching.time.advance(20.0)
    assert watching.server.asked_for == [] and watching.server.end() is None


def test_the_ranks_that_the_probe_sees_are_told_as_they_come(watching):
    def train(process) -> None:
        process.env["RANK"] = "4"
        process.note_step(1)
        process.sleep(60.0)
        process.env["RANK"] = "5"
        process.pid += 1
        process.note_step(1)
        process.sleep(60.0)

    watching.watch(train)
    seen = watching.until(lambda: [report.seen for _, report in watching.server.reports if report.seen])
    assert (seen[0].ranks, seen[0].world_size) == ([4], 1)
    watching.until(lambda: [r for _, r in watching.server.reports if r.seen and r.seen.ranks == [4, 5]])


def test_another_place_gets_everything_from_the_beginning(watching):
    """A restored store does not know the run, and makes it again."""
    watching.watch(then(events(), waiting))
    watching.until_registered()
    watching.until(lambda: series(watching))
    watching.server.failure = UNKNOWN
    watching.server.change(fence=9, uid="u2", attempt=1)
    watching.until(lambda: len(watching.server.asked_for) == 2)
    watching.server.failure = None
    watching.server.files.clear()
    watching.server.points_offsets.clear()
    watching.server.series.clear()
    watching.until(lambda: "running" in watching.server.states(9))
    let_end(watching)
    assert watching.until_over()
    assert series(watching) == [0, 1, 2, 3, 4] and watching.server.end(9).state == "succeeded"


def test_a_signal_ends_the_command_as_it_would_without_us(watching):
    watching.watch(lambda process: process.end(-signal.SIGTERM))
    assert watching.until_over()
    assert watching.server.end().state == "failed"
