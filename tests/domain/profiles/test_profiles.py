"""What the traces of torch's profiler show. Pure; times of the traces are in microseconds."""

from __future__ import annotations

from typing import Any

import pytest

from domain.profiles.overview import (
    NoSteps,
    between,
    flame,
    length,
    overlap,
    overview,
    recorded_events,
    union,
)
from domain.profiles.records import Overview
from domain.profiles.views import (
    NO_DEVICE,
    ProfileCost,
    ProfileState,
    ProfileView,
    RankOutcome,
    cost_sentence,
    difference,
    first_step_to_record,
    latest_cost,
    state_of_all,
    table_of,
    troubles,
)


def event(category: str, name: str, begin: float, duration: float, thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": duration, "tid": thread}


def view_of(*events: dict[str, Any]) -> Overview:
    """The overview of one step of a second."""
    step = event("user_annotation", "ProfilerStep#1", 0, 1e6)
    return overview(recorded_events({"traceEvents": [step, *events, {"ph": "M", "name": "process_name"}]}))


def test_times_are_added_up_without_counting_any_twice() -> None:
    joined = union([(3, 4), (0, 2), (1, 2.5), (4, 5)])
    assert joined == [(0, 2.5), (3, 5)]
    assert (length(joined), overlap(joined, [(2, 4), (4.5, 9)])) == (4.5, 2.0)
    assert between(joined) == [0.5]


def test_on_a_cpu_operators_exposed_communication_and_gaps_are_shown() -> None:
    view = view_of(
        event("cpu_op", "aten::linear", 100e3, 200e3),
        event("cpu_op", "aten::addmm", 150e3, 80e3),
        event("cpu_op", "c10d::allreduce_", 300e3, 10e3),
        event("user_annotation", "gloo:all_reduce", 250e3, 350e3, thread=2),
        event("cpu_op", "aten::mul", 900e3, 200e3),
    )
    (linear, mul, *_) = view.operators  # the longest first
    assert (linear.name, linear.calls) == ("aten::linear", 1)
    assert (linear.self_s, linear.total_s) == pytest.approx((0.12, 0.2))
    assert mul.total_s == pytest.approx(0.1), "only the part within the step"
    assert view.exposed_communication_s == pytest.approx(0.3)
    assert (view.gaps.count, view.gaps.longest_s) == (1, pytest.approx(0.59))
    assert view.device is None
    assert view.advice == [
        "30% of the time it only communicates, or waits for slower ranks: compare the ranks; if all wait alike, "
        "accumulate gradients over more micro-steps, or send bf16 (a DDP communication hook)."
    ]


def test_on_a_device_kernels_hide_communication_and_idle_time_is_named() -> None:
    view = view_of(
        event("kernel", "gemm", 0, 300e3, thread=7),
        event("kernel", "ncclDevKernel_AllReduce", 250e3, 200e3, thread=20),
        event("gpu_memcpy", "Memcpy HtoD", 800e3, 50e3, thread=7),
        event("cpu_op", "aten::item", 100e3, 150e3),
        event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 500e3, 250e3),
    )
    assert view.device is not None
    assert view.device.busy_share == pytest.approx(0.5)
    assert view.device.exposed_communication_s == pytest.approx(0.15)
    assert view.device.gaps.total_s == pytest.approx(0.35)
    assert view.device.kernels[0].name == "gemm"
    assert [sentence.partition(" of the time")[2][:14].strip() for sentence in view.advice] == [
        "it waits for", "it only commu", ", in 1 gaps be", "Python waits",
    ]  # fmt: skip


def test_a_step_with_little_of_anything_is_not_criticised() -> None:
    assert view_of(event("cpu_op", "aten::mm", 0, 950e3)).advice == []


def test_a_trace_without_steps_is_refused() -> None:
    with pytest.raises(NoSteps):
        recorded_events({"traceEvents": [event("cpu_op", "aten::mm", 0, 5)]})


def test_equal_paths_of_a_flame_graph_are_added_up_and_ours_left_out() -> None:
    trace = [
        event("user_annotation", "ProfilerStep#1", 0, 1000),
        event("python_function", "train.py(1): <module>", -50, 2000),
        event("python_function", "train.py(5): step", 0, 400),
        event("cpu_op", "aten::mm", 10, 100),
        event("cpu_op", "aten::mm", 200, 100),
        event("python_function", "<built-in function sleep at 0x7f12>", 600, 300),
        event("python_function", "probe/rankzero_probe/hooks.py(1): after_step", 950, 20),
        event("cpu_op", "aten::add", 960, 20, thread=9),
    ]
    frames = flame(recorded_events({"traceEvents": trace}))
    assert [(depth, name) for depth, name, _ in frames] == [
        (0, "train.py(1): <module>"),
        (1, "train.py(5): step"),
        (2, "aten::mm"),
        (1, "<built-in function sleep>"),
    ]
    assert [seconds * 1e6 for _, _, seconds in frames] == pytest.approx([1000, 400, 200, 300])


def test_ranks_stand_side_by_side_and_two_profiles_are_compared() -> None:
    slow, fast = view_of(event("cpu_op", "aten::mm", 0, 5)), view_of()
    fast = fast.model_copy(update={"seconds": 0.5})
    outcomes = [RankOutcome(rank, "n", ProfileState.RECORDED, overview=slow) for rank in (0, 1)]
    columns, rows = table_of(outcomes)
    assert [column.title for column in columns] == ["a step of", "rank 0", "rank 1"]
    cells = [[column.cell(row) for column in columns] for row in rows]
    assert ["device busy", NO_DEVICE, NO_DEVICE] in cells
    assert difference(slow, fast).startswith("a step took 500 ms instead of 1000 ms (-50%)")


def test_the_first_step_is_one_that_the_fastest_rank_has_not_reached() -> None:
    assert first_step_to_record([(100, 0.1, 1.0), (90, 0.05, 1.0)], in_s=4.0) == 194
    assert first_step_to_record([(10, 60.0, 3600.0)], in_s=4.0) == 14, "a rank that hangs is not far ahead"


def test_the_cost_is_that_of_this_runs_last_profile() -> None:
    outcome = RankOutcome(0, "n", ProfileState.RECORDED, "", 5 << 20, 0.8, view_of())
    failed = RankOutcome(1, "n", ProfileState.FAILED, "it broke")
    view = ProfileView("a", ProfileState.RECORDED, 1, [0, 1], 5, 10, 1.0, [], [outcome, failed])
    assert "25% slower while it records, 512 KiB a step in each of 2 ranks" in cost_sentence(latest_cost([view]), 2)
    assert latest_cost([]) is None and "No run has been profiled here yet" in cost_sentence(None, 2)
    assert "By the last profile here, of run abc: about 50% slower" in cost_sentence(ProfileCost(0.5, 1, "abc"), 2)
    assert troubles(view) == ["Rank 1: it broke."]
    assert state_of_all([outcome, failed]) == "recorded"
