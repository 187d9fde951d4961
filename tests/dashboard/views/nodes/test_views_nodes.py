"""The Nodes page without a browser: a node in detail, draining, and what is said where no node is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.views.nodes.details import clock_sentence, ranks
from dashboard.views.nodes.details import facts as properties
from db.models import User
from db.nodes import node_reports
from domain.health.testing import DeviceResult, TestAnswer
from domain.lists.node_lists import notices
from domain.messages import DeviceFault, NodeLoad
from domain.views import DeviceView
from tests.dashboard.pages import Pages, button, links, served, served_full, texts
from tests.db.cluster import facts


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as pages:
        yield pages


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Pages]:
    with served_full(tmp_path / "data") as pages:
        yield pages


def said(page) -> str:
    return texts(page).replace("\\", "")


def test_a_node_in_the_address_is_shown_in_detail(full):
    page = full.open("nodes", node="gpu-1")
    assert not page.exception
    assert [heading.value for heading in page.header] == ["gpu\\-1"]
    assert "nan at once · running · 2 GPUs, ranks 0-1" in links(page)
    shown = said(page)
    assert "Python 3.11.9, torch 2.13.0+cu126, CUDA 12.6, NCCL 2.27.5" in shown
    assert "/opt/env/bin/python" in shown and "rack=b2" in shown and "1.37 TiB" not in shown
    assert "used by others" in shown and "96 %" in shown


def test_nothing_is_shown_in_detail_unless_it_is_asked_for(full):
    page = full.open("nodes")
    assert not page.exception and not page.header
    assert not full.open("nodes", node="gpu-77").header


def test_only_several_people_read_that_trainings_share_an_account(full):
    assert "--run-as" not in said(full.open("nodes"))
    with full.service.store.write() as session:
        session.add(User(name="ana", role="member", created_at=1.0))
    assert said(full.open("nodes")).count("--run-as") == 1


def test_a_node_is_drained_and_taken_back_with_a_button(full):
    page = full.open("nodes", node="gpu-1")
    button(page, "Drain").click().run()
    assert not page.exception and "violet-badge" in texts(page)
    assert [node.name for node in full.service.nodes() if node.draining] == ["gpu-1"]
    button(page, "Undrain").click().run()
    assert not any(node.draining for node in full.service.nodes())
    assert "violet-badge" not in texts(page)


def test_details_are_closed(full):
    page = full.open("nodes", node="gpu-1")
    button(page, "Close").click().run()
    assert not page.exception and not page.header


def test_a_lost_node_says_so_first(full):
    page = full.open("nodes", node="cpu-1")
    (warning,) = page.warning
    assert warning.value.replace("\\", "").startswith("Lost: silent for ")


def test_a_node_in_quarantine_shows_why_and_is_tested_and_released(empty):
    store, now = empty.service.store, empty.service.clock()
    node_id = node_reports.register_node(store, facts("gpu-9"), None, now).node_id
    fallen = [DeviceFault(device="cpu:1", kind="Xid", number=79, at=now)]
    node_reports.heartbeats_received(store, {node_id: node_reports.Heartbeat(now, NodeLoad(faults=fallen))})
    page = empty.open("nodes", node="gpu-9")
    (error,) = page.error
    assert error.value.replace("\\", "") == "slot 1 is in quarantine: Xid 79 (fallen off the bus)"
    assert "slot 1, Xid 79 (fallen off the bus)" in said(page) and not page.warning
    button(page, "Test").click().run()
    assert [info.value for info in page.info] == ["Testing 2 slots …"]
    test = empty.service.health.latest_test(node_id)
    right = TestAnswer(results=[DeviceResult(part="memory", is_right=None, text="no torch")])
    empty.service.health.answered(node_id, test.id, right)
    page = empty.open("nodes", node="gpu-9")
    (warning,) = page.warning
    assert warning.value.replace("\\", "").endswith("UTC could not be done. Memory: no torch.") and page.error
    button(page, "Release").click().run()
    assert not page.exception and not page.error and "released" in said(page)


def test_a_node_whose_default_interpreter_cannot_train_says_so(empty):
    problem = "The Python /usr/bin/python3 has no torch on node gpu-9: install torch in it."
    info = {"interpreter": {"path": "/usr/bin/python3", "python": "3.11.2", "torch": None, "problem": problem}}
    node_reports.register_node(empty.service.store, facts("gpu-9", info=info), None, empty.service.clock())
    page = empty.open("nodes", node="gpu-9")
    assert [warning.value.replace("\\", "") for warning in page.warning] == [problem]


def test_a_node_says_whether_torch_is_imported_ahead(full):
    ready = "torch is imported ahead (312 MiB)"
    node = replace(full.service.nodes()[0], load={"warm_start": ready})
    assert dict(properties(node, full.service.clock()))["**Warm start**"] == ready


def test_a_node_is_removed_only_when_nothing_runs_there(full):
    page = full.open("nodes", node="gpu-1")
    button(page, "Remove").click().run()
    assert "Its past runs stay in the history" in said(page)
    button(page, "Remove it").click().run()
    assert "stop them first" in page.session_state["dialog_refused"]  # AppTest closes a dialog with each run
    assert len(full.service.nodes()) == 2
    page = full.open("nodes", node="cpu-1")
    button(page, "Remove").click().run()
    button(page, "Remove it").click().run()
    assert not page.exception
    assert [node.name for node in full.service.nodes()] == ["gpu-1"]


def test_a_preflight_is_asked_of_all_nodes_or_of_some(full):
    page = full.open("nodes")
    page.session_state["nodes_tab"] = "Preflight"
    page.run()
    assert "No preflight has been run yet." in texts(page)
    button(page, "Run preflight").click().run()
    page.multiselect(key="preflight_nodes").set_value(["cpu-1"]).run()
    button(page, "Run preflight").click().run()
    assert not page.exception
    assert [check.nodes for check in full.service.preflights.all()] == [["cpu-1"], ["gpu-1"]]
    assert page.selectbox(key="preflight_chosen").value == full.service.preflights.all()[0].id


def test_a_preflight_of_nobody_says_why(full):
    full.seed.silence("gpu-1", 300)
    page = full.open("nodes")
    page.session_state["nodes_tab"] = "Preflight"
    page.run()
    button(page, "Run preflight").click().run()
    assert "no node is online" in page.error[0].value


def test_ranks_are_said_in_short():
    def held(*numbers: int) -> list[DeviceView]:
        return [DeviceView(str(n), "cuda", "", None, "run", 1, False, rank=n) for n in numbers]

    assert ranks(held(3)) == ranks(held(3, 3)) == "rank 3"
    assert ranks(held(8, 9, 10)) == "ranks 8-10"
    assert ranks(held(0, 2)) == "ranks 0, 2"


@pytest.mark.parametrize(
    ("offset_s", "error_s", "words", "is_told"),
    [
        (-0.004, 0.002, "agrees within 6 ms", False),
        (0.25, None, "agrees within 250 ms", False),
        (1.2, 0.5, "agrees within 1700 ms", False),
        (5.02, 0.01, "5.0 s ahead of the dashboard's", True),
        (-61.0, 0.01, "61.0 s behind the dashboard's", True),
    ],
)
def test_clocks_that_do_not_agree_are_said(full, offset_s, error_s, words, is_told):
    drifting = replace(full.service.nodes()[1], info={"clock_offset_s": offset_s, "clock_error_s": error_s})
    assert clock_sentence(drifting) == words
    assert any("clock" in text for text in notices(drifting)) is is_told
