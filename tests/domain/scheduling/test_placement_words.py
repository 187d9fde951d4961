"""A run that waits says why, in words that name who it waits for."""

from __future__ import annotations

import pytest

from domain.scheduling.fit import about, without_names
from domain.scheduling.placement import place
from tests.db.clusters import host, want

HOUR_S = 3600.0


def said(first, nodes, *others) -> str:
    return place([first, *others], nodes, 0.0).waiting[first.fence].reason


def test_who_ends_when_is_told():
    nodes = [host("gpu-1", 8), host("gpu-2", 0, [("7f3k", 8, 25 * 60.0)])]
    decision = place([want(0, nodes=2, devices=8)], nodes, 0.0)
    assert decision.waiting[0].reason == ("needs 16 GPUs on 2 nodes, 8 are free; 7f3k on gpu-2 ends in about 25 min")
    assert decision.waiting[0].starts_at == 25 * 60.0


FULL = host("gpu-1", 0, [("old", 8, None)])
CASES = [
    (want(0), [FULL], "needs 1 GPU, none is free; old on gpu-1 does not say when it ends"),
    (want(0), [], "needs 1 GPU; no node has joined"),
    (want(0, labels={"rack": "a"}), [FULL], "needs 1 GPU on one node labelled rack=a; no such node has joined"),
    (want(0, on_nodes=("b",)), [FULL], "needs 1 GPU on b; no such node has joined"),
    (
        want(0, on_nodes=("gpu-1", "b")),
        [FULL],
        "needs 1 GPU on one of gpu-1 and b, none is free; old on gpu-1 does not say when it ends",
    ),
    (
        want(0, nodes=2, on_nodes=("a", "b", "c"), labels={"x": "1"}),
        [],
        "needs 2 GPUs on 2 of a, b and c labelled x=1; no such node has joined",
    ),
    (
        want(0, devices=4),
        [host("a", 3, [("r", 5, 40.0)]), host("b", 2, [("s", 6, None)])],
        "needs 4 GPUs on one node, 5 are free, but at most 3 on one node; r on a ends in about 40 s",
    ),
    (
        want(0, nodes=2, devices=4),
        [host("a", 4), host("b", 3, [("s", 5, 2 * HOUR_S)]), host("c", 1, [("t", 7, None)])],
        "needs 8 GPUs on 2 nodes, 8 are free, but only 1 node has 4 of them; s on b ends in about 2 h",
    ),
    (
        want(0, nodes=4, devices=8, fewest_nodes=2),
        [FULL, host("gpu-2", 8)],
        "needs at least 16 GPUs on 2 to 4 nodes, 8 are free; old on gpu-1 does not say when it ends",
    ),
    (
        want(0, nodes=3, fewest_nodes=2, on_nodes=("a", "b", "c")),
        [host("a", 8)],
        "needs at least 2 GPUs on 2 to 3 of a, b and c, 8 are free, but only 1 node has 1 of them; "
        "only 1 node of that size is known",
    ),
    (
        want(0, devices=16),
        [FULL],
        "needs 16 GPUs on one node, none is free; the largest registered node has 8 GPUs",
    ),
    (
        want(0, nodes=2, devices=8),
        [host("a", 8)],
        "needs 16 GPUs on 2 nodes, 8 are free; only 1 node of that size is known",
    ),
    (want(0), [host("a", draining=True)], "needs 1 GPU; a is draining"),
    (
        want(0, nodes=4, devices=8),
        [
            host("a", 8),
            host("b", 6, foreign=2),
            host("c", contact="lost"),
            host("d", contact="lost"),
            host("e", contact="no contact"),
        ],
        "needs 32 GPUs on 4 nodes, 14 are free; no contact with e, c and d are lost,"
        " other programs use 2 GPUs of b",
    ),
    (want(0, devices=3), [host("a", 2, kind="cpu", used=[("r", 6, 0.0)])],
     "needs 3 slots on one node, 2 are free; r on a ends any moment"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "nodes", "words"), CASES)
def test_the_reason(first, nodes, words):
    assert said(first, nodes) == words


def test_who_may_not_pass_is_told_for_whom_the_free_ones_are_kept():
    nodes = [host("a", 4, [("old", 4, 60.0)])]
    first, second = want(0, devices=8), want(1, devices=2)
    assert said(second, nodes, first) == "needs 2 GPUs on one node; 4 are free, but reserved for run0, which came first"
    urgent = want(5, devices=8, priority=7)
    assert said(second, nodes, urgent).endswith("reserved for run5, which has priority 7")


def test_who_is_third_in_line_is_told_of_those_before():
    nodes = [host("a", 0, [("old", 8, 60.0)])]
    assert said(want(1, devices=8), nodes, want(0, devices=8, duration_s=100.0)) == (
        "needs 8 GPUs on one node, none is free; run0 is waiting, too, and came first"
    )
    waits = place([want(0, devices=8, duration_s=100.0), want(1, devices=8)], nodes, 0.0).waiting
    assert (waits[0].starts_at, waits[1].starts_at) == (60.0, 160.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "any moment"),
        (12, "in about 20 s"),
        (89, "in about 90 s"),
        (90, "in about 2 min"),
        (89 * 60, "in about 89 min"),
        (5000 * 60, "in about 3 days"),
        (26 * 3600, "in about 26 h"),
    ],
)
def test_times_are_as_exact_as_it_is_worth(seconds, words):
    assert about(seconds) == words


@pytest.mark.parametrize("name", ["r", "x; y on z ends soon", "a, but reserved for b, which came first", "two\nlines"])
@pytest.mark.parametrize(
    "words",
    [
        "needs 2 GPUs, none is free; {} on gpu-1 ends in about 3 min",
        "needs 2 GPUs on 2 nodes labelled a=b, 1 is free; {} on gpu-1 does not say when it ends",
        "needs 2 GPUs, none is free; {} is waiting, too, and has priority -2",
        "needs 2 GPUs; 4 are free, but reserved for {}, which came first",
    ],
)
def test_guests_read_the_sentence_without_the_name(words: str, name: str) -> None:
    assert without_names(words.format(name)) == words.format("another run")
    assert without_names(words.format(name), {name}) == words.format(name)


def test_sentence_that_names_no_run_stays() -> None:
    for sentence in ("needs 1 slot; n0 is draining", "waits 5 s before it restarts", "waits in preflight for n1; n2"):
        assert without_names(sentence) == sentence
