"""On fewer nodes a run keeps its global batch and its learning rate, or says what became of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.scheduling.resizing import changes, effective, sentence
from domain.spec import RunSpec


def spec(**given) -> RunSpec:
    return RunSpec(
        **{"target": "image_classifier", "nodes": 4, "gpus_per_node": 2, "batch_size": 32, "lr": 0.1} | given
    )


def on(nodes: int, run: RunSpec) -> RunSpec:
    return effective(run, changes(run, nodes))


def test_on_as_many_nodes_as_were_asked_for_nothing_is_different():
    assert changes(spec(lr_scaling="linear", lr_on_resize="scale"), 4) == {}
    assert effective(spec(), None) == spec()
    assert sentence(spec(), 4) == "on all 4 nodes: batch and learning rate as launched"


def test_on_half_the_nodes_twice_as_many_batches_make_a_step():
    assert changes(spec(), 2) == {"nodes": 2, "accumulate": 2}
    assert changes(spec(accumulate=3), 1) == {"nodes": 1, "accumulate": 12}
    assert sentence(spec(), 2) == (
        "on 2 of 4 nodes, 4 of 8 ranks: global batch 256 kept, accumulation 1 → 2; learning rate 0.1 unchanged"
    )


def test_uneven_resize_takes_a_smaller_batch_on_each_gpu():
    assert changes(spec(batch_size=33), 3) == {"nodes": 3, "accumulate": 2, "batch_size": 22}
    assert on(3, spec(batch_size=33)).global_batch_size == spec(batch_size=33).global_batch_size


def test_resize_takes_the_nearest_batch_and_says_so():
    run = spec()
    assert on(3, run).global_batch_size == 252
    assert sentence(run, 3) == (
        "on 3 of 4 nodes, 6 of 8 ranks: global batch 256 → 252, the nearest possible on 6 ranks, "
        "accumulation 1 → 2, batch per GPU 32 → 21; learning rate 0.1 unchanged"
    )


def test_a_rate_that_was_scaled_by_the_ranks_stays_what_it_was():
    for scaling in ("none", "linear", "sqrt"):
        run = spec(lr_scaling=scaling)
        assert on(1, run).scaled_lr == run.scaled_lr


def test_a_rate_that_is_to_follow_does_so_by_the_rule_of_the_run():
    assert on(2, spec(lr_scaling="linear", lr_on_resize="scale")).scaled_lr == pytest.approx(0.4)
    assert on(1, spec(lr_scaling="sqrt", lr_on_resize="scale")).scaled_lr == pytest.approx(0.1 * 2**0.5)
    assert "learning rate 0.8 → 0.4" in sentence(spec(lr_scaling="linear", lr_on_resize="scale"), 2)


def test_without_a_rule_a_rate_follows_the_global_batch():
    assert on(2, spec(lr_on_resize="scale")).scaled_lr == 0.1
    assert on(3, spec(lr_on_resize="scale")).scaled_lr == pytest.approx(0.1 * 252 / 256)


def test_resize_says_that_the_script_has_its_own_batch():
    run = spec(target="/x/train.py", batch_size=None, lr=None)
    assert changes(run, 2) == {"nodes": 2}
    assert sentence(run, 2) == (
        "on 2 of 4 nodes, 4 of 8 ranks: its global batch follows the script, which takes neither batch "
        "nor accumulation from Rankzero; learning rate set by the script"
    )


def test_a_script_that_takes_accumulation_alone_keeps_its_batch_whatever_that_is():
    run = spec(target="/x/train.py", batch_size=None, lr=None, args=["--acc={accumulate}"])
    assert changes(run, 2) == {"nodes": 2, "accumulate": 2}
    assert "global batch kept, accumulation 1 → 2" in sentence(run, 2)
    assert "global batch × 0.75, the nearest" in sentence(run, 3)


def test_a_script_whose_arguments_name_no_accumulation_may_read_it_from_its_environment():
    run = spec(target="/x/train.py", args=["--batch-size={batch_size}"])
    assert changes(run, 2) == {"nodes": 2, "accumulate": 2}
    assert "accumulation 1 → 2 (as far as the script reads RANKZERO_ACCUMULATE)" in sentence(run, 2)
    assert on(3, run).batch_size == 32


runs = st.builds(
    spec,
    nodes=st.integers(1, 64),
    gpus_per_node=st.integers(1, 16),
    batch_size=st.integers(1, 4096),
    accumulate=st.integers(1, 64),
    lr_scaling=st.sampled_from(["none", "linear", "sqrt"]),
)


@given(runs, st.data())
def test_a_step_has_about_as_many_samples_and_no_gpu_has_more(run, data):
    nodes = data.draw(st.integers(1, run.nodes))
    now = on(nodes, run)
    assert RunSpec.model_validate(now.model_dump()) == now
    assert (now.nodes, now.scaled_lr) == (nodes, run.scaled_lr)
    assert now.batch_size <= run.batch_size
    assert now.batch_size * now.accumulate >= run.batch_size * run.accumulate // 2
    # Never farther off than half of one sample more or less in each micro-batch.
    off = abs(now.global_batch_size - run.global_batch_size)
    assert off <= now.world_size * now.accumulate / 2
