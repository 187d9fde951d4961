"""Alerts that act, on both stores: a run is ended or rolled back once, from a checkpoint before the spike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from db.alerts import actions, alerts
from db.alerts.alerts import AlertView
from db.alerts.run_facts import last_good
from db.attempts import attempt_queries
from db.models import AlertEvent, Attempt, Checkpoint, HistoryEntry
from db.runs import run_queries, run_requests
from domain.alerts.judgement import RunEvent
from domain.alerts.rules import MOST_ROLLBACKS, Act, AlertAction, RateChange
from domain.messages import State
from tests.db.cluster import Cluster

HALF = RateChange("with the learning rate 0.05 instead of 0.1", {"lr": 0.05})


def alert_of(cluster: Cluster, act: Act = Act.ROLLBACK, rule: str = "spike") -> AlertView:
    alert_id = alerts.create(cluster.store, rule, "slack://a/b/c", None, 1.0, action=AlertAction(act, 0.5))
    return alerts.alert(cluster.store, alert_id)


def running(cluster: Cluster, **spec) -> tuple[str, int]:
    run_id = cluster.launch(gpus_per_node=2, **spec)
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    return run_id, assignment.fence


def spike(run_id: str, fence: int, key: str = "loss/70", at: float = 170.0) -> RunEvent:
    return RunEvent(key, run_id, at, "digits: loss jumped to 40 at step 70.", fence=fence)


def good(step: int = 69) -> tuple[int, float, float]:
    return step, 0.3, 100.0 + step


def checkpoint(cluster: Cluster, fence: int, step: int | None, written_at: float | None = None) -> None:
    with cluster.store.write() as session:
        session.add(
            Checkpoint(
                fence=fence, node_rank=0, path=f"work/{step}.pt", step=step, size_bytes=1, sha256=f"{step}",
                received_bytes=1, complete=True, created_at=1.0,
                written_at=100.0 + (step or 0) if written_at is None else written_at,
            )
        )  # fmt: skip


def end(cluster: Cluster, fence: int, state: str = "stopped") -> None:
    """The node ends the attempt, and the run is placed again where it goes on."""
    (assignment,) = cluster.assignments()
    assert (assignment.fence, assignment.action) == (fence, "stop")
    cluster.report(fence, state)
    cluster.place()


def origins(cluster: Cluster, run_id: str) -> list[str | None]:
    return [attempt.resumed_from for attempt in attempt_queries.attempts(cluster.store, run_id)]


def carry_out(cluster: Cluster, alert: AlertView, event: RunEvent, last=None, rate: RateChange = HALF) -> bool:
    return actions.carry_out(cluster.store, alert, event, last or good(), rate, cluster.now)


def alert_sentences(cluster: Cluster) -> list[str]:
    with cluster.store.read() as session:
        return list(session.scalars(select(AlertEvent.sentence).order_by(AlertEvent.id)))


@pytest.mark.parametrize("ends_as", ["stopped", "failed"])
def test_a_run_goes_on_from_its_last_checkpoint_before_the_spike_with_a_lower_rate(
    cluster: Cluster, ends_as: str
) -> None:
    run_id, fence = running(cluster)
    for step in (30, 60, 90):
        checkpoint(cluster, fence, step)
    alert = alert_of(cluster)
    assert carry_out(cluster, alert, spike(run_id, fence))
    assert not carry_out(cluster, alert, spike(run_id, fence)), "an event acts once"
    end(cluster, fence, ends_as)
    assert origins(cluster, run_id) == [None, "work/60.pt"]
    (second,) = cluster.assignments()
    assert (second.action, second.spec.lr, second.attempt) == ("run", 0.05, 2)
    run = run_queries.run(cluster.store, run_id, cluster.now)
    assert run is not None and (run.lr, run.base_lr, run.state) == (0.05, 0.1, State.STARTING)
    assert alert_sentences(cluster) == [
        "digits: loss jumped to 40 at step 70. The run goes back to its last checkpoint up to step 69, "
        "with the learning rate 0.05 instead of 0.1."
    ]
    with cluster.store.read() as session:
        history = list(session.scalars(select(HistoryEntry.text).filter_by(run_id=run_id)))
    assert (
        "rolled back by the alert spike, with the learning rate 0.05 instead of 0.1; from step 60 of work/60.pt"
        in history
    )


def test_run_does_not_resume_from_checkpoints_before_a_rollback(cluster: Cluster) -> None:
    run_id, fence = running(cluster)
    for step in (60, 90):
        checkpoint(cluster, fence, step)
    carry_out(cluster, alert_of(cluster), spike(run_id, fence))
    end(cluster, fence)
    (second,) = cluster.assignments()
    cluster.report(second.fence, "failed", message="Out of memory.")
    run_requests.resume(cluster.store, run_id, cluster.now)
    cluster.place()
    assert origins(cluster, run_id) == [None, "work/60.pt", "work/60.pt"]
    assert cluster.assignments()[0].spec.lr == 0.05, "the rate stays lower"
    cluster.report(cluster.assignments()[0].fence, "failed", message="Out of memory.")
    run_requests.resume(cluster.store, run_id, cluster.now, "90.pt")
    assert origins(cluster, run_id)[-1] == "work/90.pt", "a person may choose any"


def test_a_checkpoint_without_a_step_is_judged_by_its_time(cluster: Cluster) -> None:
    run_id, fence = running(cluster)
    checkpoint(cluster, fence, None, written_at=168.0)
    carry_out(cluster, alert_of(cluster), spike(run_id, fence))
    end(cluster, fence)
    assert origins(cluster, run_id) == [None, "work/None.pt"]


def test_without_a_checkpoint_before_it_begins_again(cluster: Cluster) -> None:
    run_id, fence = running(cluster)
    checkpoint(cluster, fence, 90)
    checkpoint(cluster, fence, None, written_at=169.5)
    checkpoint(cluster, fence, 3, written_at=171.0)  # numbered by epochs
    carry_out(cluster, alert_of(cluster), spike(run_id, fence))
    end(cluster, fence)
    assert origins(cluster, run_id) == [None, None]


def test_an_attempt_that_was_never_good_leaves_its_own_checkpoint_behind(cluster: Cluster) -> None:
    run_id, fence = running(cluster)
    for step in (30, 60):
        checkpoint(cluster, fence, step)
    alert = alert_of(cluster, rule="loss-nan")
    carry_out(cluster, alert, spike(run_id, fence))
    end(cluster, fence)
    (second,) = cluster.assignments()
    cluster.report(second.fence, "running")
    event = spike(run_id, second.fence, "2")
    assert actions.carry_out(cluster.store, alert, event, None, HALF, cluster.now)
    end(cluster, second.fence)
    assert origins(cluster, run_id) == [None, "work/60.pt", "work/30.pt"]


def test_a_run_is_rolled_back_a_few_times_and_then_ended(cluster: Cluster) -> None:
    run_id, fence = running(cluster, max_restarts=5)
    checkpoint(cluster, fence, 60)
    alert = alert_of(cluster)
    for number in range(MOST_ROLLBACKS):
        assert carry_out(cluster, alert, spike(run_id, fence, f"{number}"))
        end(cluster, fence)
        fence = cluster.assignments()[0].fence
        cluster.report(fence, "running")
    assert carry_out(cluster, alert, spike(run_id, fence, "last"))
    end(cluster, fence)
    run = run_queries.run(cluster.store, run_id, cluster.now)
    assert run is not None and run.state == State.STOPPED and cluster.assignments() == []
    assert run.message == (
        "Ended by the alert spike: digits: loss jumped to 40 at step 70. This alert has rolled the run back "
        "3 times, so it ends now."
    )


def test_an_alert_ends_a_run_with_its_rule_as_the_reason(cluster: Cluster) -> None:
    run_id, fence = running(cluster, max_restarts=5)
    waiting = cluster.launch(gpus_per_node=2)
    alert = alert_of(cluster, Act.END, "hung")
    assert carry_out(cluster, alert, replace(spike(run_id, fence), sentence="digits: hung."))
    end(cluster, fence)
    run = run_queries.run(cluster.store, run_id, cluster.now)
    assert run is not None
    assert (run.state, run.message) == (State.STOPPED, "Ended by the alert hung: digits: hung.")
    with cluster.store.read() as session:
        queued = session.scalars(select(Attempt.fence).filter_by(run_id=waiting)).one()
    end_of = run_queries.run(cluster.store, waiting, cluster.now)
    assert end_of is not None and end_of.state == State.STARTING and queued > fence


def test_alert_leaves_an_ending_run_alone(cluster: Cluster) -> None:
    run_id, fence = running(cluster)
    alert = alert_of(cluster)
    run_requests.request_stop(cluster.store, run_id, cluster.now)
    assert not carry_out(cluster, alert, spike(run_id, fence, "1"))
    end(cluster, fence)
    assert not carry_out(cluster, alert, spike(run_id, fence, "2"))
    assert [sentence.partition("70. ")[2] for sentence in alert_sentences(cluster)] == [
        "It was already ending, so nothing was done.",
        "It had already ended, so nothing was done.",
    ]
    assert alerts.alert(cluster.store, alert.id).waiting == 2
    alerts.remove(cluster.store, alert.id)
    assert not carry_out(cluster, alert, spike(run_id, fence, "3"))


def test_rates_and_arguments_of_several_rollbacks_add_up(cluster: Cluster) -> None:
    run_id, fence = running(cluster, lr=None, args=["--lr=0.1", "--api-key=secret"])
    alert, args = alert_of(cluster), ["--lr={lr}", "--api-key=secret"]
    first = RateChange("", {"lr": 0.05, "lr_scaling": "none", "args": args})
    carry_out(cluster, alert, spike(run_id, fence, "1"), rate=first)
    end(cluster, fence)
    (second,) = cluster.assignments()
    cluster.report(second.fence, "running")
    carry_out(cluster, alert, spike(run_id, second.fence, "2"), rate=RateChange("", {"lr": 0.025}))
    end(cluster, second.fence)
    (third,) = cluster.assignments()
    assert (third.spec.lr, third.spec.args) == (0.025, args)
    spec = actions.spec_of(cluster.store, run_id)
    assert spec is not None and (spec.lr, spec.args) == (0.025, args)
    shown = attempt_queries.attempts(cluster.store, run_id)[-1].changes
    assert shown["lr"] == 0.025 and "secret" not in str(shown)


def test_the_last_number_before_a_loss_broke_is_found(cluster: Cluster) -> None:
    _, fence = running(cluster)
    assert last_good(cluster.store, fence) is None
    nan = float("nan")
    broken = [(step, 1.0 if step < 50 else nan, 100.0 + step) for step in range(0, 100, 10)]
    later = [(step, 1.0 if step < 70 else nan, 100.0 + step) for step in range(0, 100, 10)]
    series = {"train/loss": broken, "val/loss": later, "lr": [(0, nan, 100.0)]}
    cluster.points(fence, 0, 10, series)
    assert last_good(cluster.store, fence) == (40, 1.0, 140.0)
