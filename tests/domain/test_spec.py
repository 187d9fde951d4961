"""A specification that cannot be right is refused, naming the field and the rule."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from domain.spec import RunSpec, lr_factor


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodes", 0),
        ("nodes", -1),
        ("gpus_per_node", 0),
        ("batch_size", -8),
        ("epochs", 0),
        ("max_steps", -1),
        ("accumulate", 0),
        ("warmup_steps", -1),
        ("lr", 0.0),
        ("lr", -0.1),
        ("lr", math.nan),
        ("lr", math.inf),
        ("lr_scaling", "cubic"),
        ("precision", "fp8"),
        ("strategy", "horovod"),
        ("seed", -1),
        ("target", ""),
        ("target", "a\0b"),
        ("name", "two\nlines"),
        ("name", "x" * 300),
        ("env", {"LD_PRELOAD": "evil.so"}),
        ("env", {"RANKZERO_TOKEN": "x"}),
        ("env", {"MASTER_ADDR": "1.2.3.4"}),
        ("env", {"a b": "x"}),
        ("links", {"../up": "/data"}),
        ("links", {"data": "relative"}),
        ("args", ["x" * 200_000]),
        ("stop_grace_s", math.inf),
        ("module", "os; rm"),
    ],
)
def test_it_is_refused(field, value):
    with pytest.raises(ValidationError) as refused:
        RunSpec(**{"target": "image_classifier", field: value})
    assert refused.value.errors()[0]["loc"][0] == field


def test_an_unknown_field_is_refused():
    with pytest.raises(ValidationError):
        RunSpec(target="x", batchsize=3)


@pytest.mark.parametrize("strategy", ["dp", "single"])
def test_one_process_strategies_have_one_node_and_no_torchrun(strategy):
    assert RunSpec(target="x", strategy=strategy, gpus_per_node=4).world_size == 1
    assert RunSpec(target="x", strategy=strategy).effective_launcher == "python"
    with pytest.raises(ValidationError):
        RunSpec(target="x", strategy=strategy, nodes=2)
    with pytest.raises(ValidationError):
        RunSpec(target="x", strategy=strategy, launcher="torchrun")


def test_the_linear_rule_multiplies_by_the_number_of_ranks():
    spec = RunSpec(target="x", nodes=4, gpus_per_node=2, lr=0.0001, lr_scaling="linear", accumulate=4, batch_size=8)
    assert spec.scaled_lr == pytest.approx(0.0008)
    assert spec.global_batch_size == 8 * 8 * 4


def test_the_square_root_rule_and_none():
    assert lr_factor("sqrt", 16) == 4
    assert lr_factor("none", 16) == 1


def test_a_range_of_nodes_makes_a_run_elastic():
    spec = RunSpec(target="x", nodes="2:4")
    assert (spec.elastic, spec.fewest_nodes, spec.nodes, spec.node_range) == (True, 2, 4, "2:4")
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec
    assert RunSpec(target="x", nodes="3").node_range == "3"


@pytest.mark.parametrize(
    "given",
    [
        {"nodes": "4:2"},
        {"nodes": "2:"},
        {"nodes": "0:2"},
        {"nodes": "1:99999"},
        {"nodes": "2:4", "min_nodes": 3},
        {"nodes": 4, "elastic": True},
        {"nodes": 2, "min_nodes": 3},
        {"torchrun_restarts": 1, "launcher": "python"},
    ],
)
def test_ranges_that_mean_nothing_are_refused(given):
    with pytest.raises(ValidationError):
        RunSpec(target="x", **given)
