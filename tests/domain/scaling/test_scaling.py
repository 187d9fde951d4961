"""Scaling studies: sizes on nodes, windows of steps, the next run, and the verdict with what limits it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.messages import State
from domain.performance.phases import BESIDES, PHASES, PhaseTotals
from domain.performance.slow_ranks import SlowRank
from domain.scaling import measurement
from domain.scaling.judgement import judge
from domain.scaling.measurement import RunFigures, Window, is_steady, spread
from domain.scaling.plan import Layout, PlannedPoint, ScalingPlan, layout, next_actions
from domain.scaling.points import MeasuredPoint, limit_against, limit_alone, mean_step
from domain.studies import StudyAction, Trial

STEP = {"data_s": 0.01, "forward_s": 0.03, "backward_s": 0.05, "optimizer_s": 0.01}


def figures(steps_per_s: float = 10.0, samples: float | None = 32.0, jitter: float = 0.0, **more) -> RunFigures:
    """A run whose windows differ by `jitter`, with the phases of one step in seconds."""
    rates = [steps_per_s * (1 + jitter * (number % 3 - 1)) for number in range(9)]
    phases = {name: more.pop(name, STEP.get(name, 0.0)) for name in (*PHASES, *BESIDES)}
    return RunFigures([Window(10, 10 / rate) for rate in rates], samples, phases, **more)


@pytest.mark.parametrize(
    ("devices", "capacities", "size"),
    [
        (2, [2], Layout(2, 1)),
        (8, [4, 4], Layout(8, 2)),
        (6, [4, 2, 2], Layout(6, 3)),
        (6, [4, 3, 3], Layout(6, 2)),
        (3, [2, 2, 1], Layout(3, 3)),
        (4, [2], None),
        (6, [5, 2], None),
        (1, [], None),
    ],
)
def test_devices_lie_equally_on_the_fewest_nodes(devices, capacities, size) -> None:
    assert layout(devices, capacities) == size


def test_warm_up_and_checkpoints_are_left_out() -> None:
    steps = list(range(1, 102, 10))
    slow_start = [0.0, *(10.0 + 0.1 * step for step in steps[1:])]
    saving = [0.0 if step < 60 else 30.0 for step in steps]
    totals = PhaseTotals(0, "n", steps, [0.0] * 11, {"forward_s": slow_start, "checkpoint_s": saving})
    windows = measurement.windows(measurement.progress_of_phases(totals), 80)
    assert [window.steps for window in windows] == [10] * 8
    assert [window.steps_per_s for window in windows] == pytest.approx([10.0] * 8)
    assert measurement.is_measured(windows, 100) and not measurement.is_measured(windows, 200)


def test_without_phases_the_rates_between_records_count() -> None:
    progress = measurement.progress_of_rates([(1, 0.5), (31, 10.0), (31, 9.0), (51, 10.0), (71, 5.0)])
    assert measurement.windows(progress, 100) == [
        Window(20, pytest.approx(2.0)),
        Window(20, pytest.approx(4.0)),
    ]


def test_a_point_is_repeated_until_its_runs_agree() -> None:
    assert is_steady([figures(jitter=0.02)]) and not is_steady([figures(jitter=0.1)])
    assert spread([figures(jitter=0.1)]) == pytest.approx(0.2)
    assert is_steady([figures(jitter=0.1), figures(10.4, jitter=0.1)])
    assert not is_steady([figures(), figures(11.0)]) and not is_steady([])


Made = tuple[Trial, RunFigures | None]


def run(state: State | None, figures: RunFigures | None = None, **more) -> Made:
    return Trial(0, "run", state, **more), figures


DONE = run(State.SUCCEEDED, figures())
NOISY = run(State.SUCCEEDED, figures(jitter=0.2))
OTHER = run(State.SUCCEEDED, figures(13.0))
TRAINS = run(State.RUNNING)
ENOUGH = {"last_step": 120, "logged_s": 5.0}
FAILED, SHORT, STOPPED = run(State.FAILED), run(State.SUCCEEDED), run(State.STOPPED)
REFUSED = (Trial(0, None, None, state="failed"), None)
DELETED = (Trial(0, None, None), None)


@pytest.mark.parametrize(
    ("points", "is_stopped", "action"),
    [
        ([[], []], False, StudyAction("launch", 0)),
        ([[TRAINS], []], False, None),
        ([[run(State.RUNNING, **ENOUGH)], []], False, StudyAction("stop", 0)),
        ([[run(State.RUNNING, **ENOUGH | {"last_step": 119})], []], False, None),
        ([[run(State.RUNNING, **ENOUGH | {"logged_s": 4.9})], []], False, None),
        ([[run(State.RUNNING, **ENOUGH, is_stopping=True)]], False, None),
        ([[NOISY], []], False, StudyAction("launch", 0)),
        ([[NOISY, OTHER], []], False, StudyAction("launch", 0)),
        ([[NOISY, OTHER, NOISY, OTHER], []], False, StudyAction("launch", 0)),
        ([[NOISY, OTHER, NOISY, OTHER, NOISY], []], False, StudyAction("launch", 1)),
        ([[FAILED], []], False, StudyAction("launch", 1)),
        ([[REFUSED], []], False, StudyAction("launch", 1)),
        ([[DELETED], []], False, StudyAction("launch", 0)),
        ([[DONE], [FAILED]], False, StudyAction("end")),
        ([[SHORT], []], False, StudyAction("end")),
        ([[DONE], [SHORT], []], False, StudyAction("end")),
        ([[STOPPED], []], False, StudyAction("launch", 1)),
        ([[DONE], [TRAINS]], True, StudyAction("stop", 1)),
        ([[DONE], []], True, StudyAction("end")),
    ],
)
def test_runs_follow_one_another(points: list[list[Made]], is_stopped: bool, action: StudyAction | None) -> None:
    planned = PlannedPoint(devices=1, nodes=1, strategy="ddp", kind="cpu", changes={})
    plan = ScalingPlan(mode="weak", steps=100, points=[planned] * len(points))
    made = [(replace(trial, params={"point": at}), own) for at, of in enumerate(points) for trial, own in of]
    trials = [replace(trial, number=number) for number, (trial, _) in enumerate(made)]
    by_number = {number: own for number, (_, own) in enumerate(made)}
    assert next_actions(plan, trials, by_number, is_stopped) == ([action] if action else [])


def point(devices: int, *runs: RunFigures, **more) -> MeasuredPoint:
    return MeasuredPoint(devices, 1, figures=runs, run=f"run{devices}", **more)


def test_the_verdict_names_the_knee_what_limits_beyond_it_and_what_failed() -> None:
    judged = judge(
        [
            point(1, figures(10.0)),
            point(2, figures(9.4, 64)),
            point(4, figures(8.6, 128)),
            point(8, figures(5.16, 256, exposed_comm_s=0.09)),
            MeasuredPoint(16, 2, run="f", problem="run f failed: out of memory"),
        ],
        "cuda",
        is_ended=True,
    )
    assert [one.speedup and round(one.speedup, 2) for one in judged.points] == [1, 1.88, 3.44, 4.13, None]
    assert judged.points[2].efficiency == pytest.approx(0.86)
    assert (judged.points[0].limit, judged.points[3].limit) == ("compute", "communication")
    assert judged.verdict == (
        "4 GPUs: 3.4x, 86%; 8 GPUs (4.1x, 52%) gain 20% more for twice the cost. Limit on 8 GPUs: "
        "communication: 47% of the step that no computation hides. 16 GPUs: run f failed: out of memory."
    )


def test_ranks_on_one_cpu_share_its_cores() -> None:
    base = figures(10.0, cpu_percent=98.0, ranks_per_core=0.5)
    both = figures(5.4, 64, cpu_percent=99.0, ranks_per_core=1.0, forward_s=0.06, backward_s=0.1)
    judged = judge([point(1, base), point(2, both)], "cpu", is_ended=True)
    assert judged.points[1].limit == "CPU cores"
    assert judged.verdict == (
        "2 processes (1.1x, 54%) gain 8% more for twice the cost. Limit on 2 processes: the ranks share the cores."
    )


@pytest.mark.parametrize(
    ("cause", "more"),
    [
        (None, {}),
        ("data", {"data_s": 0.06}),
        ("communication", {"exposed_comm_s": 0.05}),
        ("compute", {"forward_s": 0.06, "gpu_percent": 95.0}),
        ("launch gaps", {"forward_s": 0.06, "gpu_percent": 40.0}),
        ("other", {"other_s": 0.06}),
        ("CPU cores", {"forward_s": 0.08, "cpu_wait_s": 0.05, "ranks_per_core": 1.0}),
        ("CPU cores", {"exposed_comm_s": 0.05, "ranks_per_core": 1.5}),
        ("CPU cores", {"exposed_comm_s": 0.05, "ranks_per_core": 1.0, "cpu_percent": 95.0}),
        ("CPU cores", {"exposed_comm_s": 0.05, "ranks_per_core": 1.0, "cpu_percent": 60.0}),
        ("communication", {"exposed_comm_s": 0.05, "ranks_per_core": 0.5, "cpu_percent": 60.0}),
        ("compute", {"forward_s": 0.06, "ranks_per_core": 0.5, "cpu_percent": 40.0}),
        ("communication", {"exposed_comm_s": 0.05, "ranks_per_core": 1.0, "cpu_percent": 30.0}),
        ("communication", {"exposed_comm_s": 0.05, "uneven_s": 0.045, "ranks_per_core": 1.0}),
        ("communication", {"exposed_comm_s": 0.05, "uneven_s": 0.045, "ranks_per_core": 0.5}),
    ],
)
def test_the_limit_is_what_grew_against_the_ideal(cause, more) -> None:
    base, step = mean_step([figures()], 1, 1), mean_step([figures(samples=64, **more)], 2, 1)
    limit = limit_against(step, base)
    assert (limit and limit.cause) == cause


def slow(cause: str, lost_share: float) -> SlowRank:
    return SlowRank(1, "gpu-2", cause, lost_share, step_s=0.15, own_s=0.06, others_s=0.002, ranks=2)


@pytest.mark.parametrize(
    ("cause", "verdict", "more"),
    [
        ("slow rank", slow("data", 0.3), {"ranks_per_core": 1.0, "cpu_percent": 60.0}),
        ("slow rank", slow("data", 0.3), {"ranks_per_core": 1.0, "cpu_percent": 99.0}),
        ("slow rank", slow("forward", 0.3), {}),
        ("CPU cores", slow("cpu", 0.3), {"ranks_per_core": 1.0, "cpu_percent": 60.0}),
        ("slow rank", slow("cpu", 0.3), {"ranks_per_core": 0.5, "cpu_percent": 60.0}),
        ("CPU cores", slow("data", 0.1), {"ranks_per_core": 1.0, "cpu_percent": 60.0}),
    ],
)
def test_a_rank_that_the_others_wait_for_is_the_limit(cause, verdict, more) -> None:
    base = mean_step([figures(ranks_per_core=0.5)], 1, 1)
    run = figures(samples=64, exposed_comm_s=0.05, slow=verdict, **more)
    limit = limit_against(mean_step([run, run], 2, 1), base)
    assert limit.cause == cause
    assert (cause == "slow rank") == limit.words.startswith("rank 1 on gpu-2 ")


def test_a_slow_rank_counts_only_in_most_runs_and_beyond_that_of_the_base_line() -> None:
    base = mean_step([figures()], 1, 1)
    runs = [figures(samples=64, exposed_comm_s=0.05, slow=one) for one in (slow("data", 0.3), None)]
    assert limit_against(mean_step(runs, 2, 1), base).cause == "communication"
    both = mean_step([figures(slow=slow("data", 0.3))], 1, 1)
    assert limit_alone(both).cause == "slow rank"
    assert limit_against(mean_step(runs[:1], 2, 1), both).cause == "communication"


def test_ranks_are_uneven_by_their_own_work_not_by_waiting_for_a_cpu() -> None:
    def step(**phases: float) -> dict[str, float]:
        return dict.fromkeys((*PHASES, *BESIDES), 0.0) | STEP | phases

    waits = step(exposed_comm_s=0.06)
    assert measurement.uneven_s([waits, step(data_s=0.07)]) == pytest.approx(0.03)
    assert measurement.uneven_s([waits, step(forward_s=0.09, cpu_wait_s=0.06)]) == pytest.approx(0)
    assert measurement.uneven_s([]) == 0


def test_the_verdict_says_whom_the_ranks_wait_for() -> None:
    named = figures(6.6, 64, exposed_comm_s=0.05, slow=slow("data", 0.3), ranks_per_core=1.0)
    judged = judge([point(1, figures(10.0)), point(2, named)], "cpu", is_ended=True)
    assert "Limit on 2 processes: rank 1 on gpu-2 waits 60 ms of 150 ms for data" in judged.verdict
    uneven = figures(6.6, 64, exposed_comm_s=0.05, uneven_s=0.045, ranks_per_core=1.0)
    judged = judge([point(1, figures(10.0)), point(2, uneven)], "cpu", is_ended=True)
    assert "hides, most of it waiting for the rank with the most work." in judged.verdict


def test_ranks_that_wait_for_a_network_leave_the_cores_idle() -> None:
    base = mean_step([figures(ranks_per_core=0.5)], 1, 1)
    runs = [figures(samples=64, exposed_comm_s=0.05, ranks_per_core=1.0, cpu_percent=60.0)]
    causes = [limit_against(mean_step(runs, 2, nodes), base).cause for nodes in (1, 2)]
    assert causes == ["CPU cores", "communication"]


def test_with_half_the_batch_half_the_time_is_ideal() -> None:
    base = mean_step([figures()], 1, 1)
    halved = {name: seconds / 2 for name, seconds in STEP.items()}
    assert limit_against(mean_step([figures(samples=32, **halved)], 2, 1), base) is None
    same = mean_step([figures(samples=32)], 2, 1)
    assert limit_against(same, base).cause == "compute"


def test_runs_that_differ_and_data_parallel_are_said() -> None:
    judged = judge(
        [
            point(1, figures(10.0), strategy="single"),
            point(1, figures(9.9), strategy="ddp"),
            point(2, figures(9.5, 64), figures(7.0, 64), strategy="ddp"),
            point(2, figures(12.0, 32), strategy="dp"),
        ],
        "cuda",
        is_ended=True,
    )
    assert judged.points[0].speedup == 1 and judged.points[3].speedup == pytest.approx(1.2)
    assert "DataParallel on 2 GPUs: 1.2x, DDP: 1.6x." in judged.verdict
    assert "Runs differ on 2 GPUs (30% in 2 runs)" in judged.verdict


def test_a_machine_that_others_use_is_said() -> None:
    alone = figures(10.0, cpu_wait_s=0.04, ranks_per_core=0.5)
    judged = judge([point(1, alone), point(2, figures(9.8, 64, ranks_per_core=1.0))], "cpu", is_ended=True)
    assert judged.verdict.endswith("Ranks waited for CPUs that something else used, on 1 process (40% of the step).")


def test_nothing_measured_and_a_single_size() -> None:
    failed = MeasuredPoint(1, 1, run="f", problem="run f failed: no")
    assert judge([failed], "cpu", is_ended=True).verdict == "1 process: run f failed: no."
    alone = judge([point(1, figures(samples=None))], "cpu", is_ended=True)
    assert (alone.points[0].samples_per_s, alone.points[0].speedup) == (None, 1)
    assert alone.verdict.startswith("1 process: a speed-up needs a second size.")
    assert judge([point(1, figures())], "cpu", is_ended=False).verdict is None
