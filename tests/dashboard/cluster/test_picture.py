"""What a cell is, and the cluster in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboard.api.nodes import Pictures
from dashboard.cluster.picture import (
    DeviceUse,
    attention,
    cell,
    natural_key,
    picture,
    summary,
)
from db.nodes.node_queries import Occupant
from domain.lists.node_lists import kinds, notices
from domain.spec import rank_at
from domain.views import DeviceView, NodeView, Quarantine
from tests.dashboard.running import Running
from tests.dashboard.seeded_cluster import seed_cluster

BROKEN = Quarantine(1.0, "Xid 79 (fallen off the bus)")
DEVICE = DeviceView("GPU-0", "cuda", "NVIDIA H200", 141, run_id=None, attempt=None, foreign=False)
TAKEN = replace(DEVICE, id="GPU-1", run_id="abcdefghij", attempt=1, rank=5)
SLOT = replace(DEVICE, id="cpu:0", kind="cpu", name="AMD EPYC")
RUN = Occupant("abcdefghij", "small GPT", "running", 12)
LEFT_OUT = replace(DEVICE, quarantine=BROKEN)


def node(name: str = "gpu-1", devices: tuple[DeviceView, ...] = (DEVICE, TAKEN), **more) -> NodeView:
    known = {
        "id": name, "name": name, "state": "alive", "draining": False, "hostname": name, "address": "10.0.0.1",
        "slots": len(devices), "free": 1, "devices": list(devices), "labels": {}, "info": {}, "load": None,
        "last_seen": 0.0, "silent_s": 0.0,
    }  # fmt: skip
    return NodeView(**known | more)


@pytest.mark.parametrize(
    ("expected", "device", "about"),
    [
        (DeviceUse.FREE, DEVICE, {}),
        (DeviceUse.OURS, TAKEN, {}),
        (DeviceUse.OURS, TAKEN, {"draining": True}),
        (DeviceUse.FOREIGN, replace(DEVICE, foreign=True), {}),
        (DeviceUse.FOREIGN, replace(DEVICE, foreign=True), {"draining": True}),
        (DeviceUse.DRAINING, DEVICE, {"draining": True}),
        (DeviceUse.DRAINING, DEVICE, {"pool": "slurm:7"}),
        (DeviceUse.UPGRADE, DEVICE, {"upgrade": "Upgrade its worker."}),
        (DeviceUse.UPGRADE, DEVICE, {"upgrade": "Upgrade its worker.", "draining": True}),
        (DeviceUse.OURS, TAKEN, {"upgrade": "Upgrade its worker."}),
        (DeviceUse.QUARANTINE, LEFT_OUT, {"draining": True}),
        (DeviceUse.OURS, replace(TAKEN, quarantine=BROKEN), {}),
        (DeviceUse.LOST, LEFT_OUT, {"state": "lost"}),
        (DeviceUse.LOST, DEVICE, {"upgrade": "Upgrade its worker.", "state": "lost"}),
        (DeviceUse.SILENT, TAKEN, {"state": "no contact"}),
        (DeviceUse.SILENT, DEVICE, {"state": "no contact", "draining": True}),
        (DeviceUse.LOST, TAKEN, {"state": "lost"}),
    ],
)
def test_a_cell_is_what_somebody_who_looks_for_room_must_know(expected, device, about):
    assert cell(node(devices=(device,), **about), device) is expected


@pytest.mark.parametrize(
    ("expected", "nodes"),
    [
        ("No node has joined yet.", []),
        ("1 node: 1 GPU free, 1 in use by 1 run", [node()]),
        ("2 nodes: 1 GPU free, 1 in use by 1 run, 1 node lost", [node(), node("b", state="lost")]),
        ("1 node: 0 GPUs free, 1 node without contact", [node(state="no contact")]),
        ("1 node: 0 GPUs free, 1 in use by 1 run, 1 draining", [node(draining=True)]),
        ("1 node: 0 GPUs free, 1 in use by 1 run, 1 to upgrade", [node(upgrade="Upgrade its worker.")]),
        ("1 node: 1 GPU free, 1 in quarantine", [node(devices=(DEVICE, LEFT_OUT))]),
        ("1 node: 0 slots free, 1 used by others", [node(devices=(replace(SLOT, foreign=True),))]),
        ("2 nodes: 1 GPU and 2 slots free", [node("c", devices=(SLOT, SLOT)), node(devices=(DEVICE,))]),
        ("1 node: nothing free", [node(devices=())]),
    ],
)
def test_the_cluster_is_summed_up_in_a_sentence(expected, nodes):
    assert summary(nodes) == expected


def test_hundreds_of_nodes_are_summed_up_too():
    many = [node(f"gpu-{n}", (DEVICE,) * 8) for n in range(200)] + [node("x", (TAKEN,) * 8)]
    assert summary(many) == "201 nodes: 1\u202f600 GPUs free, 8 in use by 1 run"


def test_a_silent_node_says_what_it_has_before_anything_it_once_said():
    notice_load = {"notice": "The disk of /data is nearly full: 3.1 GiB are free."}
    assert notices(node(load=notice_load)) == [notice_load["notice"]]
    silent = node(load=notice_load, state="no contact", silent_s=14.2)
    assert notices(silent) == ["Silent for 14 s. 1 run has devices there."]
    assert notices(node(devices=(), state="lost", silent_s=7300)) == ["Lost: silent for 2 h."]


def test_what_is_in_quarantine_says_why():
    assert notices(node(devices=(DEVICE, LEFT_OUT))) == ["GPU 1 is in quarantine: Xid 79 (fallen off the bus)"]
    whole = node(devices=(LEFT_OUT, LEFT_OUT), quarantine=Quarantine(2.0, "2 of its devices are in quarantine"))
    assert notices(whole) == ["In quarantine: 2 of its devices are in quarantine"]


def test_nodes_that_fell_silent_together_are_one_line():
    lost = [node(f"gpu-{n}", state="lost", silent_s=4000.0 + n) for n in range(5)]
    (line,) = attention(lost)
    assert line["name"] == "All 5 nodes" and line["state"] == "lost"
    assert line["text"].startswith("Lost; the last was heard 66 min ago. No node is in contact: check this")
    some, own = attention([*lost, node("z", load={"notice": "The disk is nearly full."})])
    assert (some["name"], some["text"]) == ("5 nodes", "Lost; the last was heard 66 min ago.")
    assert own == {"node": "z", "name": "z", "text": "The disk is nearly full."}
    assert [line["name"] for line in attention(lost[:2])] == ["gpu-0", "gpu-1"]


def test_an_interpreter_that_cannot_train_is_a_notice():
    problem = "The Python /usr/bin/python3 has no torch on node gpu-9: install torch in it."
    assert notices(node(info={"interpreter": {"path": "/usr/bin/python3", "problem": problem}})) == [problem]


def test_nodes_are_in_the_order_in_which_people_count():
    assert sorted(["gpu-10", "GPU-2", "a", "gpu-1"], key=natural_key) == ["a", "gpu-1", "GPU-2", "gpu-10"]


def test_cells_point_at_runs_and_say_no_more_than_is_known():
    load = {
        "cpu_percent": 12.3,
        "gpus": [{"id": "GPU-1", "utilisation_percent": 96.4, "memory_used_bytes": 71}],
    }
    drawn = picture([node(load=load | {"memory_used_bytes": 1, "memory_total_bytes": 4})], [RUN])
    assert drawn["runs"] == [{"id": RUN.id, "name": "small GPT", "state": "running", "colour": 12}]
    (shown,) = drawn["nodes"]
    assert shown["cells"] == [[0], [1, 0, 5, 96, 71]]
    assert shown["load"] == [12, 25, 0]


def test_devices_are_counted_by_kind():
    assert kinds(node(devices=(DEVICE, TAKEN, SLOT, SLOT))) == "2 × NVIDIA H200, 2 slots of AMD EPYC"
    assert kinds(node(devices=(), pool="slurm")) == "gateway to Slurm"


@pytest.mark.parametrize(("rank", "strategy"), [(21, "ddp"), (2, "dp"), (2, "single"), (21, None)])
def test_a_rank_is_known_by_where_it_computes(rank, strategy):
    assert rank_at(2, 8, 5, strategy) == rank


def test_the_picture_is_served_small_and_not_again_while_nothing_changed(dashboard: Running, monkeypatch):
    monkeypatch.setattr("dashboard.service.cost_cache.CPU_SHARE", 1e-6)
    seed_cluster(dashboard.service.store, dashboard.service.clock(), 212)
    first = dashboard.http.get("/api/cluster", headers={"Accept-Encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip" and int(first.headers["content-length"]) < 30_000
    assert len(first.json()["nodes"]) == 212
    assert first.json()["nodes"][3]["cells"][7][:3] == [1, 0, 7]
    assert first.json()["nodes"][4]["cells"][0][:3] == [1, 0, 8]
    again = dashboard.http.get("/api/cluster", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304 and not again.content
    plain = dashboard.http.get("/api/cluster", headers={"Accept-Encoding": "identity"})
    assert plain.json() == first.json()
    assert dashboard.anonymous().get("/api/cluster").status_code == 401


def test_a_picture_is_read_once_for_all_who_look(shared: Running, monkeypatch):
    asked = []
    monkeypatch.setattr("dashboard.service.cost_cache.CPU_SHARE", 1e-6)  # it is kept for longer than a second
    monkeypatch.setattr("dashboard.api.nodes.occupants", lambda store: asked.append(store) or [])
    pictures = Pictures(shared.service)
    assert pictures.latest() == pictures.latest()
    assert len(asked) == 1
