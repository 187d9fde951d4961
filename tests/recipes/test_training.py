"""The promises of the loop: equal results however a batch is split, and whenever a run is stopped."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
from ranks import run_ranks
from torch.nn import functional

from image_classifier import make_model
from language_model import GPT
from training import learning_rate_at

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("task", "accumulate"),
    [
        ("gpt", 2),
        ("cnn", 1),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("gpt", 1), ("cnn", 2))),
    ],
)
def test_two_ranks_equal_one_process_with_the_same_global_batch(tmp_path: Path, task: str, accumulate: int):
    (before, two), _ = run_ranks(2, programs.train_some, tmp_path / "two", task, 4, accumulate)
    [(_, one)] = run_ranks(1, programs.train_some, tmp_path / "one", task, 8 * accumulate, 1)
    assert max((two[key] - one[key]).abs().max().item() for key in one) < 1e-5
    assert max((before[key] - one[key]).abs().max().item() for key in one) > 1e-3, "nothing was learnt"


@pytest.mark.long
def test_accumulating_equals_one_large_batch(tmp_path: Path):
    [(_, accumulated)] = run_ranks(1, programs.train_some, tmp_path / "a", "gpt", 4, 3)
    [(_, large)] = run_ranks(1, programs.train_some, tmp_path / "b", "gpt", 12, 1)
    assert max((accumulated[key] - large[key]).abs().max().item() for key in large) < 1e-5


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        pytest.param({}, {"name": "gpt", "dropout": 0.1}, marks=pytest.mark.long),
        ({}, {"name": "cnn", "shifted": True, "norm": "batch"}),
        ({"strategy": "fsdp", "precision": "fp16"}, {"name": "gpt", "dropout": 0.1}),
        pytest.param(
            {"precision": "bf16", "workers": 1, "optimizer": "sgd"},
            {"name": "cnn", "shifted": True},
            marks=pytest.mark.long,
        ),
    ],
    ids=["gpt-ddp", "cnn-batchnorm-ddp", "gpt-fsdp-fp16", "cnn-sgd-bf16-workers"],
)
def test_a_run_resumed_in_mid_epoch_ends_bit_for_bit_like_one_never_stopped(tmp_path: Path, changes, task):
    for whole, resumed in run_ranks(2, programs.train_with_and_without_a_stop, tmp_path, changes, task):
        assert whole["step"] == resumed["step"] == 12
        assert_equal(whole, resumed)


def test_all_ranks_stop_after_the_same_step_when_one_is_signalled(tmp_path: Path):
    assert run_ranks(2, programs.stop_on_one_rank, tmp_path) == [4, 4]
    assert (tmp_path / "checkpoints" / "step_00000004.pt").is_file()


def test_validation_gives_way_when_a_rank_is_signalled(tmp_path: Path):
    assert run_ranks(2, programs.stop_during_validation, tmp_path) == [1, 1]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00000001.pt"]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_checkpoint_loads_into_the_plain_model(tmp_path: Path, strategy: str):
    run_ranks(2, programs.train_and_save, tmp_path, "gpt", strategy)
    for name in ("step_00000003.pt", "best.pt"):
        state = torch.load(tmp_path / "checkpoints" / name, weights_only=True)
        GPT(**programs.SHAPE).load_state_dict(state["model"], strict=True)
        assert not (tmp_path / "checkpoints" / name).is_symlink()


def test_a_checkpoint_of_the_cnn_loads_into_the_plain_model(tmp_path: Path):
    run_ranks(1, programs.train_and_save, tmp_path, "cnn", "single")
    state = torch.load(tmp_path / "checkpoints" / "step_00000003.pt", weights_only=True)
    make_model("cnn", "group", 1, 10).load_state_dict(state["model"], strict=True)


def test_a_sharded_run_resumes_in_one_process(tmp_path: Path):
    run_ranks(2, programs.train_and_save, tmp_path, "gpt", "fsdp")
    checkpoint = tmp_path / "checkpoints" / "step_00000003.pt"
    [restored] = run_ranks(1, programs.resume_elsewhere, tmp_path / "one", checkpoint)
    assert_equal(restored["state"]["model"], restored["saved"]["model"])
    assert_equal(restored["state"]["optimizer"]["state"], restored["saved"]["optimizer"]["state"])


def test_validation_counts_each_sample_once_also_when_ranks_do_not_divide_them(tmp_path: Path):
    sizes = [1, 2, 7, 9, 16]
    for validated in run_ranks(2, programs.validate_sizes, tmp_path, sizes):
        for (loss, accuracy, count), expected in zip(validated, expected_validation(sizes), strict=True):
            assert (count, accuracy) == (expected[2], pytest.approx(expected[1]))
            assert loss == pytest.approx(expected[0], rel=1e-5)


def test_training_goes_on_when_the_loss_is_not_a_number(tmp_path: Path):
    assert run_ranks(1, programs.train_on_nan, tmp_path) == [4]


def test_the_rate_warms_up_linearly_then_falls_as_a_cosine():
    rates = [learning_rate_at(step, 1.0, warmup_steps=4, total_steps=104) for step in range(105)]
    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert rates[54] == pytest.approx(0.55), "half way down, to a tenth"
    assert rates[104] == pytest.approx(0.1)
    assert all(later <= earlier for earlier, later in pairwise(rates[4:]))


def test_the_rate_needs_no_warm_up():
    assert learning_rate_at(0, 2.0, warmup_steps=0, total_steps=10) == 2.0


def test_a_schedule_goes_on_where_it_was_saved_but_with_todays_flags(tmp_path: Path):
    [(saved, resumed, applied)] = run_ranks(1, programs.rates_before_and_after_a_resume, tmp_path)
    assert resumed == applied == pytest.approx(2 * saved)


def expected_validation(sizes: list[int]) -> list[tuple[float, float, int]]:
    """The same figures by one forward pass over everything."""
    torch.manual_seed(0)
    model = make_model("cnn", "group", 1, 10)
    expected = []
    for size in sizes:
        noise = torch.Generator().manual_seed(size)
        pictures = torch.randn(size, 1, 8, 8, generator=noise)
        labels = torch.randint(0, 10, (size,), generator=noise)
        with torch.no_grad():
            logits = model(pictures)
        accuracy = (logits.argmax(-1) == labels).float().mean().item()
        expected.append((functional.cross_entropy(logits, labels).item(), accuracy, size))
    return expected


def assert_equal(left: Any, right: Any, where: str = "") -> None:
    """Bit for bit, all the way down."""
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_equal(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_equal(one, other, f"{where}/{index}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    else:
        assert left == right or (isinstance(left, float) and math.isnan(left) and math.isnan(right)), where
