"""Whether the nodes can hold a run is said; what they never can is refused with the field to change."""

from __future__ import annotations

import pytest

from domain.scheduling.fit import devices_per_node, fit
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
def test_impossible_request_is_refused(asked, field, words):
    fitted = fit(spec(**asked), NODES).refusal
    assert fitted is not None
    assert fitted[0] == field and words in fitted[1] and fitted[1].startswith(f"{field}: ")
    assert fit(spec(**asked, wait_for_nodes=True), NODES).refusal is None


def test_request_for_busy_drained_or_lost_nodes_may_wait():
    assert fit(spec(nodes=2, gpus_per_node=4), NODES).refusal is None
    away = [host("a", contact="lost"), host("b", draining=True)]
    assert fit(spec(nodes=2, gpus_per_node=8), away).refusal is None


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


@pytest.mark.parametrize(
    ("nodes", "verdict", "words"),
    [
        ([host("a", 4)], "fits", "2 of 4 free slots on node a"),
        ([host("a", 4), host("b", 2)], "fits", "2 of 2 free slots on node b"),
        ([host("a", 1, [("r", 3, None)])], "waits", "1 of 4 slots free on node a"),
        ([host("a", 1)], "missing", "only 1 node is connected, the largest with 1 slot"),
        ([host("a", 4, contact="lost")], "missing", "No node is connected"),
    ],
)
def test_where_a_run_would_start_is_said(nodes, verdict, words):
    fitted = fit(spec(gpus_per_node=2), nodes)
    assert fitted.verdict == verdict and words in fitted.sentence


def test_where_no_node_is_what_was_asked_for_that_is_said():
    fitted = fit(spec(gpus_per_node=2, labels={"rack": "b"}), [])
    assert (fitted.verdict, fitted.sentence) == (
        "missing",
        "No connected node has this name and these labels.",
    )


def test_an_elastic_run_fits_where_its_fewest_nodes_do():
    three = [host(name, 2) for name in "abc"]
    assert fit(spec(nodes="2:4", gpus_per_node=2), three).sentence.endswith("It starts at once on 3 of 4 nodes.")
    assert fit(spec(nodes="2:4", gpus_per_node=2), three[:1]).verdict == "missing"


def test_what_is_in_quarantine_is_said_where_a_run_waits():
    one, whole = host("gpu-1", 7, quarantined=1), host("gpu-2", 8, in_quarantine=True)
    found = fit(spec(gpus_per_node=8, nodes=2), [one, whole])
    assert (found.verdict, found.refusal) == ("waits", None)
    assert "7 of 8 slots free on node gpu-1 (1 in quarantine or tested)" in found.sentence
    assert "0 of 8 slots free on node gpu-2 (in quarantine)" in found.sentence
