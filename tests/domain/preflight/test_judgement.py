"""What nodes found about themselves, judged: every red cell with its fix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.messages import NodeCheck
from domain.preflight import (
    RESERVE_BYTES,
    Link,
    NodeAnswer,
    judge,
    judge_links,
    pairs,
    rate,
    red,
    rounds,
    sentence,
    unanswered,
)
from tests.domain.preflight.node_checks import GOOD, PYTHON, way


def facts(**other) -> NodeCheck:
    return NodeCheck(**GOOD | other)


def pair(first: NodeCheck | None, second: NodeCheck | None, **of_second) -> list[NodeAnswer]:
    """a is the first node of a run, b comes to it."""
    return [NodeAnswer("a", first), NodeAnswer("b", second, needs_reach=(0,), **of_second)]


def cell(asked, row, node="b"):
    (judged,) = [each for each in judge(asked, for_run=True) if (each.row, each.node) == (row, node)]
    return judged


def test_two_nodes_alike_are_all_green():
    cells = judge(pair(facts(), facts(reached=[way()])), for_run=True)
    assert {each.state for each in cells} == {"ok"} and not any(each.fix for each in cells)
    rows = list(dict.fromkeys(each.row for each in cells))
    assert rows == ["alive", "interpreter", "torch", "CUDA", "NCCL", "interface", "port", "disk", "clock",
                    "script", "code", "reach"]  # fmt: skip


def test_node_without_torch_is_red_before_a_run_alone_which_else_may_bring_it():
    alone = [NodeAnswer("a", facts(interpreter={"problem": "The Python /x has no torch on node a: install it."}))]
    (before,) = [each for each in judge(alone, for_run=True) if each.row == "interpreter"]
    (asked,) = [each for each in judge(alone, for_run=False) if each.row == "interpreter"]
    assert (before.state, asked.state, asked.value) == ("failed", "warning", "no torch of its own")
    assert "--environment" in asked.fix and "--python" in asked.fix


RED = [
    ("torch", {"interpreter": PYTHON | {"torch": "2.12.1+cu126"}}, "2.12.1, others have 2.13.0", "--python"),
    ("CUDA", {"interpreter": PYTHON | {"cuda": "12.8"}}, "12.8, others have 12.6", "Install the same CUDA"),
    ("interpreter", {"interpreter": {"problem": "There is no torch."}}, "There is no torch", "try again"),
    ("interface", {"interface": None}, "no network card has the address 10.0.0.1", "--address"),
    ("interface", {"interface_is_up": False}, "lan0 (10.0.0.1) is down", "ip link set lan0 up"),
    ("port", {"port_problem": "cannot listen at 10.0.0.1: x"}, "cannot listen at 10.0.0.1: x", "--address"),
    ("devices", {"devices": ["G1"], "foreign_devices": ["G1"]}, "G1 in use by another program", "nvidia-smi"),
    ("disk", {"disk_free_bytes": 1024**2}, "1 MiB free, 256 MiB needed", "Free space on the disk of /data"),
    ("clock", {"clock_offset_s": 5.0}, "5.0 s ahead of the server", "time server"),
    ("clock", {"clock_offset_s": -5.0}, "5.0 s behind the server", "time server"),
    ("script", {"problem": "The script x does not exist on node b."}, "The script x does not exist on node b", "Copy"),
    ("code", {"code": "b" * 64}, "bbbbbbbbbbbb, others have aaaaaaaaaaaa", "Copy the same code"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "other", "value", "fix"), RED)
def test_fault_of_a_node_is_one_red_cell_with_its_fix(row, other, value, fix):
    asked = pair(facts(), facts(reached=[way()], **other))
    judged = cell(asked, row)
    assert (judged.state, judged.value) == ("failed", value) and fix in judged.fix
    assert red(judge(asked, for_run=True)) == [judged]


@pytest.mark.parametrize(
    ("trouble", "problem", "fix"),
    [
        ("silent", "no answer in 2 s", "open the TCP ports of a to b"),
        ("refused", "connection refused", "may lead to another machine"),
        ("foreign", "another program answers", "Another program answers there"),
        ("no route", "no route to host", "missing route"),
    ],
)
def test_a_way_that_does_not_work_names_both_ends_and_the_place(trouble, problem, fix):
    judged = cell(pair(facts(), facts(reached=[way(trouble=trouble, problem=problem)])), "reach")
    assert (judged.peer, judged.state, judged.value) == ("a", "failed", f"{problem} at 10.0.0.1:4711")
    assert fix in judged.fix


def test_a_loopback_address_is_the_cause_of_what_is_not_reached():
    lost = way(address="127.0.0.1", trouble="refused", problem="connection refused")
    assert "No other node reaches 127.0.0.1" in cell(pair(facts(), facts(reached=[lost])), "reach").fix


def test_who_said_nothing_is_waited_for_until_it_is_given_up():
    waiting = pair(facts(), None)
    assert not red(judge(waiting, for_run=True))
    assert unanswered(waiting, judge(waiting, for_run=True)) == ["b"]
    lost = pair(facts(), None, silent_s=12.3)
    (judged,) = red(judge(lost, for_run=True))
    assert (judged.row, judged.value) == ("alive", "silent for 12 s") and "worker" in judged.fix


def test_who_is_not_ready_is_waited_for():
    asked = pair(facts(), facts(is_prepared=False))
    cells = judge(asked, for_run=True)
    assert unanswered(asked, cells) == ["b"] and cell(asked, "reach").state == "waiting"


def test_where_all_clocks_agree_it_is_the_server_that_is_off():
    asked = pair(facts(clock_offset_s=5.0), facts(clock_offset_s=5.2, reached=[way()]))
    assert not red(judge(asked, for_run=True))


def test_a_clock_that_is_not_known_well_is_not_judged():
    asked = pair(facts(), facts(clock_offset_s=3.0, clock_error_s=2.5, reached=[way()]))
    assert not red(judge(asked, for_run=True))


def test_the_sentence_says_which_cell_and_the_mend_stands_apart():
    asked = pair(facts(), facts(reached=[way(trouble="silent", problem="no answer in 2 s")]))
    message, fix = sentence(asked, judge(asked, for_run=True))
    assert message == "Preflight: reach, b → a: no answer in 2 s at 10.0.0.1:4711."
    assert fix.startswith("A firewall or a missing route is between them")
    asked = pair(facts(disk_free_bytes=0), facts(port_problem="x", interface=None, reached=[way()]))
    message, _ = sentence(asked, judge(asked, for_run=True))
    assert message.endswith("2 more cells are red.")


def test_versions_are_told_for_all_nodes_in_one_sentence():
    asked = pair(facts(), facts(interpreter=PYTHON | {"torch": "2.12.1"}, disk_free_bytes=0, reached=[way()]))
    message, _ = sentence(asked, judge(asked, for_run=True))
    assert message.startswith("The nodes disagree on torch: a has torch 2.13.0+cu126")


def test_a_slow_link_is_a_warning_and_a_dead_one_is_red():
    links = [
        Link("a", "b", 1e9),
        Link("a", "c", 1.1e9),
        Link("b", "c", 2e8),
        Link("b", "d", None, "no all-reduce"),
    ]
    states = {(each.node, each.peer): each.state for each in judge_links(links)}
    assert states == {("a", "b"): "ok", ("a", "c"): "ok", ("b", "c"): "warning", ("b", "d"): "failed"}
    slow = judge_links(links)[2]
    assert slow.value == "200 MB/s, the median is 1 GB/s" and "cable" in slow.fix
    assert [each.state for each in judge_links([Link("a", "b", 5.0)])] == ["ok"]
    assert rate(1.234e9) == "1.23 GB/s" and rate(2e3) == "2 kB/s"


@given(st.integers(1, 24), st.integers(1, 24))
def test_in_one_round_no_node_measures_twice_and_every_pair_comes_once(nodes, all_up_to):
    wanted = pairs(nodes, all_up_to)
    judged = rounds(wanted)
    assert sorted(one for each in judged for one in each) == sorted(set(wanted))
    for each in judged:
        both = [node for one in each for node in one]
        assert len(both) == len(set(both))
    if nodes <= all_up_to:
        assert len(judged) <= nodes
    else:
        assert len(judged) <= 3


@given(st.lists(st.one_of(st.none(), st.just(GOOD), st.just(GOOD | {"clock_offset_s": 9.0})), max_size=6))
def test_every_cell_has_a_known_state_and_every_red_one_a_mend(judged):
    asked = [NodeAnswer(f"n{i}", NodeCheck(**one) if one else None) for i, one in enumerate(judged)]
    for each in judge(asked, for_run=False):
        assert each.state in ("ok", "failed", "waiting", "skipped")
        assert bool(each.fix) == (each.state == "failed")


def test_more_room_is_needed_where_checkpoints_are_known():
    asked = pair(facts(), facts(disk_free_bytes=RESERVE_BYTES * 2, reached=[way()]), needs_bytes=RESERVE_BYTES * 4)
    assert cell(asked, "disk").value == "512 MiB free, 1.0 GiB needed"
