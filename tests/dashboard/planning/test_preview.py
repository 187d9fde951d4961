"""What a run would be, and what is warned of, as pure functions of a spec and the nodes."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from dashboard.json_responses import document
from dashboard.planning.preview import Preview
from dashboard.planning.preview import preview as preview_of
from dashboard.planning.resolve import ClusterNodes, Resolved, check_target, resolve
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from domain.views import DeviceView, NodeView


def node(name: str = "n0", slots: int = 2, used: int = 0, kind: str = "cpu", hostname: str = "far") -> NodeView:
    devices = [DeviceView(f"{kind}:{i}", kind, kind, None, "run" if i < used else None, 1, False) for i in range(slots)]
    return NodeView(
        name, name, "alive", False, hostname, "10.0.0.1", slots, slots - used, devices, {}, {}, None, 0.0, 0.0
    )


def spec(**chosen: object) -> RunSpec:
    return RunSpec.model_validate({"target": "image_classifier", **chosen})


def resolved(asked: RunSpec, nodes: Sequence[NodeView] = ()) -> Resolved:
    return resolve(asked, ClusterNodes(lambda: nodes))


def preview(asked: RunSpec, nodes: Sequence[NodeView]) -> Preview:
    return preview_of(resolved(asked, nodes))


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("linear", 8.0), ("sqrt", math.sqrt(8))])
def test_the_scaling_rule_counts_ranks_and_not_accumulation(scaling: str, factor: float) -> None:
    planned = preview(spec(nodes=4, gpus_per_node=2, lr=0.0001, lr_scaling=scaling, batch_size=16, accumulate=4), [])
    assert planned.lr == pytest.approx(0.0001 * factor)
    assert (planned.world_size, planned.global_batch_size) == (8, 512)
    assert len(planned.commands) == 4


def test_no_number_of_processes_means_what_the_emptiest_node_has_free() -> None:
    assert preview(spec(), [node(slots=8, used=5), node("n1", slots=4)]).world_size == 4
    assert preview(spec(), [node(slots=8, used=8)]).world_size == 8
    assert preview(spec(), []).world_size == 1
    assert preview(spec(strategy="single"), [node(slots=8)]).world_size == 1


def test_only_nodes_that_may_get_the_run_count_for_it() -> None:
    login, gpu = node("login", slots=64), node("gpu-1", slots=8, used=2, kind="cuda")
    assert [eligible_node.name for eligible_node in ClusterNodes(lambda: [login, gpu]).eligible(spec())] == ["gpu-1"]
    assert [
        eligible_node.name for eligible_node in ClusterNodes(lambda: [login, gpu]).eligible(spec(gpus_per_node=9))
    ] == ["login"]
    assert [
        eligible_node.name for eligible_node in ClusterNodes(lambda: [login, gpu]).eligible(spec(on_nodes=["login"]))
    ] == ["login"]
    assert preview(spec(), [login, gpu]).world_size == 6
    assert "0 of the known nodes have that many" in warned(spec(labels={"rack": "b"}, gpus_per_node=1), gpu)


def test_recipes_fill_in_their_own_figures_and_keep_what_was_chosen() -> None:
    assert resolved(spec()).spec.lr
    assert resolved(spec(lr=0.5, batch_size=3)).spec.lr == 0.5
    own = RunSpec(target="/x/train.py", gpus_per_node=1, entry="train.py")
    assert resolved(own).spec == own


def warned(planned_spec: RunSpec, *nodes: NodeView) -> str:
    return " ".join(preview(planned_spec, nodes).warnings)


def test_warnings_say_what_to_beware_of() -> None:
    assert warned(spec(gpus_per_node=2), node()) == ""
    assert "cannot start here" in warned(spec(gpus_per_node=4), node())
    assert "wait in the queue" in warned(spec(gpus_per_node=2), node(used=1))
    assert "warm-up" in warned(spec(gpus_per_node=2, lr_scaling="linear"), node())
    assert "warm-up" not in warned(spec(gpus_per_node=2, lr_scaling="linear", warmup_steps=10), node())
    script = RunSpec(target="/far/train.py", gpus_per_node=2, lr_scaling="linear", warmup_steps=1)
    assert "script's own" in warned(script, node())
    assert "first 64 nodes" in warned(spec(nodes=100, gpus_per_node=1), node())


def test_the_commands_of_a_thousand_nodes_are_not_all_made() -> None:
    assert len(preview(spec(nodes=4096, gpus_per_node=8), []).commands) == 64


def test_targets_are_checked_where_they_can_be_seen(tmp_path: Path) -> None:
    here, far = ClusterNodes(lambda: [node(hostname=socket.gethostname())]), ClusterNodes(lambda: [node()])
    (tmp_path / "train.py").touch()
    check_target(RunSpec(target=str(tmp_path / "train.py")), here)
    check_target(RunSpec(target=str(tmp_path), entry="train.py"), here)
    check_target(RunSpec(target=str(tmp_path), module="train"), here)
    check_target(RunSpec(target="/nowhere/train.py", workdir="/nowhere"), far)
    check_target(RunSpec(target="https://example.org/a/b.git", entry="train.py"), here)
    check_target(RunSpec(target="/wherever", entry="train.py", snapshot="0" * 64), here)
    for wrong in (
        RunSpec(target="/nowhere/train.py"),
        RunSpec(target="/nowhere/train.py", workdir="/nowhere"),
        RunSpec(target=str(tmp_path)),
        RunSpec(target=str(tmp_path), module="package.train"),
        RunSpec(target="ext::sh -c id", entry="train.py"),
        RunSpec(target="https://example.org/a/b.git", entry="train.py", workdir="/x"),
        RunSpec(target=str(tmp_path), entry="other.py"),
        RunSpec(target="relative/train.py"),
        RunSpec(target="unknown_recipe"),
        RunSpec(target="image_classifier", module="x"),
    ):
        with pytest.raises(InvalidRequest):
            check_target(wrong, here)


def test_an_elastic_run_shows_all_it_may_be_and_others_show_nothing_new() -> None:
    planned = document(preview(spec(nodes="1:2", gpus_per_node=2, batch_size=8, lr=0.1), [node()]))
    sizes = planned.pop("sizes")
    assert [(s["nodes"], s["accumulate"], s["global_batch_size"], s["lr"]) for s in sizes] == [
        (1, 2, 32, 0.1),
        (2, 1, 32, 0.1),
    ]
    assert not [text for text in planned["warnings"] if "cannot start" in text]
    plain = document(preview(spec(nodes=2, gpus_per_node=2, batch_size=8, lr=0.1), [node()]))
    assert set(plain) == set(planned)
    assert plain["commands"] == planned["commands"]
