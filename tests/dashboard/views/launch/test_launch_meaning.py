"""A plan is explained as the field explains it."""

from __future__ import annotations

from dashboard.views.launch import plan as meaning
from domain.spec import RunSpec


def plan(**asked) -> RunSpec:
    return RunSpec(target="image_classifier", **asked)


def test_four_nodes_of_two_gpus_are_eight_ranks():
    spec = plan(nodes=4, gpus_per_node=2, lr=0.0001, lr_scaling="linear", batch_size=64)
    assert meaning.world_size(spec, "GPU") == "4 nodes × 2 GPUs = 8 ranks"
    assert meaning.scaled_lr(spec, False)[1] == "0.0001 on one rank becomes 0.0008 on 8 ranks (linear)"
    assert meaning.global_batch(spec, False) == (512, "64 × 8 ranks × 1 accumulation step = 512 samples a step")


def test_a_recipes_own_batch_counts_when_none_is_given():
    product, text = meaning.global_batch(plan(gpus_per_node=2, accumulate=3, batch_size=64), True)
    assert product == 384 and text.startswith("64 (recipe’s default) × 2 ranks × 3")


def test_a_scripts_own_batch_is_said_to_be_the_scripts():
    spec = RunSpec(target="/src/train.py", gpus_per_node=2, batch_size=64)
    assert meaning.global_batch(spec, True)[1].startswith("64 (script’s default) × 2 ranks")


def test_the_image_classifier_is_told_what_batch_norm_sees():
    asked = {"batch_size": 64, "args": ["--norm", "batch"]}
    assert any("its own 64 samples" in text for text in meaning.advice(plan(gpus_per_node=2, **asked)))
    assert meaning.advice(plan(gpus_per_node=1, **asked)) == []


def test_an_elastic_plan_is_explained_for_all_its_sizes():
    spec = plan(nodes="2:4", gpus_per_node=2, lr=0.1, batch_size=32)
    assert meaning.ranks(spec) == "4 – 8"
    assert meaning.world_size(spec, "GPU") == "2 to 4 nodes × 2 GPUs = 4 to 8 ranks, as available"
    assert meaning.global_batch(spec, False) == (
        256,
        "32 × 8 ranks × 1 accumulation step = 256 samples a step; on fewer nodes kept, to within 1.6 %, by "
        "accumulation (2 on 2 nodes)",
    )
    assert meaning.scaled_lr(spec, False)[1] == "0.1 on 8 ranks, not scaled; unchanged on fewer nodes"
    scaled = plan(nodes="2:4", gpus_per_node=2, lr=0.1, lr_scaling="linear", lr_on_resize="scale")
    assert meaning.scaled_lr(scaled, False)[1].endswith("becomes 0.8 on 8 ranks (linear); 0.4 on 2 nodes")


def test_form_says_what_an_elastic_run_keeps():
    spec = plan(nodes=4, min_nodes=2, gpus_per_node=2, batch_size=32, lr=0.1)
    assert meaning.world_size(spec, "GPU") == "4 nodes × 2 GPUs = 8 ranks"
    assert "on fewer nodes kept" in meaning.global_batch(spec, False)[1]
