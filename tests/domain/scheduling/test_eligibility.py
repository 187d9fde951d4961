"""What the known nodes can never hold is refused with the field to change; the rest may wait."""

from __future__ import annotations

import pytest

from domain.scheduling.eligibility import devices_per_node, refusal
from domain.spec import RunSpec
from tests.db.clusters import host

NODES = [host("gpu-1", 6, [("r", 2, None)], labels={"rack": "a"}), host("gpu-2", 0, foreign=4)]


def spec(**asked) -> RunSpec:
    return RunSpec(target="language_model", **asked)


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"nodes": 3}, "nodes", "needs 3 nodes with 1 slot each, but 2 nodes are registered, the largest with 8"),
        ({"gpus_per_node": 9}, "gpus_per_node", "needs 1 node with 9 slots each"),
        ({"nodes": 2, "gpus_per_node": 8}, "gpus_per_node", "needs 2 nodes with 8 slots each"),
        ({"labels": {"rack": "b"}}, "labels", "one node labelled rack=b with 1 slot each, but 2 nodes are registered"),
        ({"nodes": 2, "labels": {"rack": "a"}}, "labels", "2 nodes labelled rack=a with"),
        ({"on_nodes": ["gpu-9"]}, "on_nodes", "there is no node 'gpu-9'; known: gpu-1 and gpu-2."),
        ({"on_nodes": ["gpu-2"], "gpus_per_node": 8}, "gpus_per_node", "needs gpu-2 with 8 slots each"),
    ],
)  # fmt: skip
def test_what_can_never_be_is_refused(asked, field, words):
    found = refusal(spec(**asked), NODES)
    assert found is not None
    assert found[0] == field and words in found[1] and found[1].startswith(f"{field}: ")
    assert refusal(spec(**asked, wait_for_nodes=True), NODES) is None


def test_what_is_only_in_use_drained_or_lost_may_wait():
    assert refusal(spec(nodes=2, gpus_per_node=4), NODES) is None
    away = [host("a", contact="lost"), host("b", draining=True)]
    assert refusal(spec(nodes=2, gpus_per_node=8), away) is None


def test_the_number_of_devices_is_what_so_many_nodes_have_free():
    assert devices_per_node(spec(), NODES) == 6
    assert devices_per_node(spec(nodes=2), NODES) == 4
    assert devices_per_node(spec(on_nodes=["gpu-2"]), NODES) == 4
    assert devices_per_node(spec(), [*NODES, host("login", 64, kind="cpu")]) == 6
    assert devices_per_node(spec(), [host("gpu", draining=True), host("other", 2)]) == 2
    assert devices_per_node(spec(strategy="single"), NODES) == 1
    assert devices_per_node(spec(), []) == 1


def test_as_many_names_are_needed_as_nodes():
    with pytest.raises(ValueError, match="on_nodes names 1 of the 2 nodes"):
        spec(nodes=2, on_nodes=["a", "a"])
