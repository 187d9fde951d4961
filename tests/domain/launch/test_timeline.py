"""The phases of a start follow each other on each node, and a node is called slow only where none waits for others."""

from __future__ import annotations

import pytest

from domain.launch.timeline import (
    COMPILE,
    DOING,
    PHASES,
    Phase,
    SlowNode,
    doing,
    is_finished,
    longest_by_phase,
    node_phases,
    slow_sentence,
    slowest,
)
from domain.messages import PhaseEnd


def ended(**ends: float) -> list[PhaseEnd]:
    return [PhaseEnd(phase=name.replace("_", " "), at=at) for name, at in ends.items()]


def names(phases: list[Phase]) -> list[tuple[str, float]]:
    return [(phase.phase, phase.seconds) for phase in phases]


def test_a_phase_begins_where_the_one_before_it_ended() -> None:
    phases = node_phases("a", 100.0, ended(process=103.0, placed=101.0, first_step=110.0))
    assert names(phases) == [("placed", 1.0), ("process", 2.0), ("first step", 7.0)]
    assert [phase.started_at for phase in phases] == [100.0, 101.0, 103.0]
    assert is_finished(phases)


def test_phases_stand_in_the_order_in_which_they_ended() -> None:
    """A script may read its first batch before it builds its model."""
    phases = node_phases("a", 0.0, ended(model_built=9.0, first_batch=4.0))
    assert names(phases) == [("first batch", 4.0), ("model built", 5.0)]


def test_compilation_is_measured_by_itself_and_moves_no_other_phase() -> None:
    compile_ = PhaseEnd(phase="compile", at=8.0, began_at=5.0)
    phases = node_phases("a", 0.0, [*ended(process=1.0, first_step=9.0), compile_])
    assert names(phases) == [("process", 1.0), ("first step", 8.0), ("compile", 3.0)]
    assert phases[-1].started_at == 5.0


def test_a_nodes_clock_is_corrected_and_no_phase_is_negative() -> None:
    phases = node_phases("a", 100.0, ended(placed=130.5, process=133.0), offset_s=30.0)
    assert names(phases) == [("placed", 0.5), ("process", 2.5)]
    assert names(node_phases("a", 100.0, ended(placed=99.0))) == [("placed", 0.0)]


@pytest.mark.parametrize(
    ("ends", "absent", "phase"),
    [
        ({}, (), "placed"),
        ({"code_fetched": 1.0}, (), "checkpoint fetched"),
        ({"code_fetched": 1.0}, ("checkpoint fetched", "preflight"), "process"),
        ({"torch_imported": 1.0}, ("rendezvous",), "model built"),
        ({"model_built": 1.0, "torch_imported": 0.5}, (), "first batch"),
    ],
)
def test_the_phase_in_progress_is_the_next_one_this_run_has(ends, absent, phase) -> None:
    phases = node_phases("a", 0.0, ended(**ends), in_progress_at=5.0, absent=absent)
    assert names(phases)[-1] == (phase, 4.0 if ends else 5.0)
    assert not is_finished(phases)


def test_after_the_first_step_nothing_is_in_progress() -> None:
    assert names(node_phases("a", 0.0, ended(first_step=2.0), in_progress_at=9.0)) == [("first step", 2.0)]


def on(node: str, **seconds: float) -> list[Phase]:
    return [Phase(node, name.replace("_", " "), 0.0, value) for name, value in seconds.items()]


def test_the_slow_node_is_the_one_furthest_beyond_the_others() -> None:
    phases = [
        *on("a", process=1.0, torch_imported=6.0),
        *on("b", process=3.0, torch_imported=31.0),
        *on("c", process=1.2, torch_imported=6.2),
    ]
    slow = slowest(phases)
    assert slow is not None
    assert slow_sentence(slow) == "Importing torch took 31 s on b, 6.1 s elsewhere."
    assert longest_by_phase(phases) == {"process": 3.0, "torch imported": 31.0}


@pytest.mark.parametrize(
    ("seconds", "others_s", "said"), [(4.49, 0.000913, "4.5 s on b, under 0.1 s"), (90.0, 9.96, "1.5 min on b, 10 s")]
)
def test_times_of_a_slow_node_are_told_in_tenths_of_a_second(seconds: float, others_s: float, said: str) -> None:
    sentence = slow_sentence(SlowNode("b", "model built", seconds, others_s))
    assert sentence == f"Building the model took {said} elsewhere."


@pytest.mark.parametrize(
    "phases",
    [
        on("a", torch_imported=60.0),
        [*on("a", torch_imported=6.0), *on("b", torch_imported=6.4)],
        [*on("a", rendezvous=1.0), *on("b", rendezvous=60.0)],
        [*on("a", process=0.01), *on("b", process=0.1)],
    ],
    ids=["alone", "hardly slower", "waits for the other", "too short to matter"],
)
def test_no_node_is_named_where_none_stands_out(phases) -> None:
    assert slowest(phases) is None


def test_what_all_wait_for_is_the_earliest_phase_in_progress() -> None:
    phases = [
        *node_phases("a", 0.0, ended(torch_imported=9.0), in_progress_at=10.0),
        *node_phases("b", 0.0, ended(process=2.0), in_progress_at=10.0),
    ]
    assert doing(phases) == "b is importing torch"
    assert doing(phases[:1]) is None
    assert DOING.keys() == {*PHASES, COMPILE}
