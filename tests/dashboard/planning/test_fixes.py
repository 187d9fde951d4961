"""After memory ran out: a smaller batch with the same global batch, ready to launch, or words where only they help."""

from __future__ import annotations

import pytest

from dashboard.planning.fixes import split, suggest_fix
from dashboard.script_reader import targets
from domain.messages import Reason
from domain.spec import RunSpec
from tests.domain.devices import device

CUDA = "rank 0 on gpu-1: CUDA out of memory, 2.00 GiB requested, train.py line 41"
KILLED = "rank 0 on gpu-1 was killed by the kernel because memory ran out (SIGKILL)"


def recipe(**changes: object) -> RunSpec:
    return RunSpec.model_validate({"target": "image_classifier", "gpus_per_node": 4, "batch_size": 32} | changes)


@pytest.fixture
def script(tmp_path):
    """A spec of a script that takes its batch (and sometimes its accumulation) as options."""

    def make(args: list[str], options: str = "--batch-size --accum-steps", **changes: object) -> RunSpec:
        lines = ["import argparse", "parser = argparse.ArgumentParser()"]
        lines += [f"parser.add_argument('{flag}', type=int, default=16)" for flag in options.split()]
        path = tmp_path / "train.py"
        path.write_text("\n".join([*lines, "args = parser.parse_args()", ""]))
        return RunSpec.model_validate({"target": str(path), "gpus_per_node": 2, "args": args} | changes)

    return make


def fix_for(spec: RunSpec, message: str = CUDA):
    fix = suggest_fix(spec, Reason.OUT_OF_MEMORY, message, targets.script_of(spec))
    assert fix is not None
    return fix


@pytest.mark.parametrize(
    ("batch", "accumulate", "smaller", "more"),
    [(32, 1, 16, 2), (32, 2, 16, 4), (15, 1, 5, 3), (6, 1, 3, 2), (9, 2, 3, 6), (3, 1, 1, 3), (127, 1, 63, 2)],
)  # fmt: skip
def test_the_product_stays_wherever_a_batch_not_far_below_half_keeps_it(
    batch: int, accumulate: int, smaller: int, more: int
) -> None:
    assert split(batch, accumulate) == (smaller, more)


def test_the_batch_that_fits_by_estimate_keeps_the_global_batch() -> None:
    spec = recipe(batch_size=96)
    memory = device(other=52, requested=28)  # three quarters of the batch fit
    fix = suggest_fix(spec, Reason.OUT_OF_MEMORY, CUDA, targets.script_of(spec), memory)
    assert fix is not None and fix.spec is not None
    assert fix.sentence == (
        "Halve the batch per GPU: 96 → 48, accumulation 1 → 2 (by estimate at most 72 fit); the global batch stays 384."
    )
    third = suggest_fix(recipe(accumulate=3), Reason.OUT_OF_MEMORY, CUDA, targets.script_of(spec), memory)
    assert third is not None and third.spec == recipe(batch_size=24, accumulate=4)


def test_where_not_even_the_model_fits_no_batch_is_suggested() -> None:
    memory = device(missing_bytes=90 << 30)
    fix = suggest_fix(recipe(), Reason.OUT_OF_MEMORY, CUDA, None, memory)
    assert fix is not None and fix.spec == recipe(precision="bf16")
    assert fix.sentence.startswith("By estimate not even one sample fits beside the model on its GPU: bf16")


def test_a_batch_that_only_the_script_knows_is_estimated_in_words() -> None:
    spec = RunSpec.model_validate({"target": "/nowhere/train.py", "gpus_per_node": 2})
    fix = suggest_fix(spec, Reason.OUT_OF_MEMORY, CUDA, None, device(other=52, requested=28, batch_size=64))
    assert fix is not None and fix.spec is None
    assert fix.sentence.endswith("About 48 of its 64 samples fit at most (an estimate).")


def test_a_recipe_is_ready_to_launch_with_half_the_batch_and_the_same_global_batch() -> None:
    fix = fix_for(recipe(accumulate=2))
    assert fix.sentence == ("Halve the batch per GPU: 32 → 16, accumulation 2 → 4; the global batch stays 256.")
    assert fix.label == "Launch with batch 16 × accumulate 4"
    assert fix.spec == recipe(batch_size=16, accumulate=4)
    assert fix.spec.global_batch_size == recipe(accumulate=2).global_batch_size


def test_a_batch_with_no_near_divisor_changes_the_global_batch_and_says_so() -> None:
    assert fix_for(recipe(batch_size=127)).sentence == (
        "Lower the batch per GPU: 127 → 63, accumulation 1 → 2; the global batch becomes 504 instead of 508."
    )


def test_on_the_host_it_is_the_batch_of_a_process() -> None:
    assert fix_for(recipe(), KILLED).sentence.startswith("Halve the batch per process: 32 → 16")


def test_a_batch_of_1_gets_bf16_then_fsdp_then_words() -> None:
    fix = fix_for(recipe(batch_size=1))
    assert fix.spec == recipe(batch_size=1, precision="bf16")
    assert fix.sentence == "The batch per GPU is already 1: bf16 halves the activations."
    fix = fix_for(recipe(batch_size=1, precision="bf16"))
    assert fix.spec == recipe(batch_size=1, precision="bf16", strategy="fsdp")
    fix = fix_for(recipe(batch_size=1, precision="bf16", strategy="fsdp"))
    assert fix.spec is None and "smaller model" in fix.sentence


def test_numbers_among_a_scripts_arguments_are_changed_where_they_stand(script) -> None:
    spec = script(["--width", "64", "--batch-size", "32", "--accum-steps=2"])
    fix = fix_for(spec)
    assert fix.spec is not None
    assert fix.spec.args == ["--width", "64", "--batch-size", "{batch_size}", "--accum-steps={accumulate}"]
    assert (fix.spec.batch_size, fix.spec.accumulate) == (16, 4)
    assert fix.sentence == ("Halve the batch per GPU: 32 → 16, accumulation 2 → 4; the global batch stays 128.")


def test_a_scripts_own_default_is_handed_over_from_now_on(script) -> None:
    fix = fix_for(script([], options="--batch-size"))
    assert fix.spec is not None
    assert fix.spec.args == ["--batch-size={batch_size}"]
    assert (fix.spec.batch_size, fix.spec.accumulate) == (8, 2)


def test_a_script_that_is_not_known_to_accumulate_is_warned_of(script) -> None:
    fix = fix_for(script(["--batch-size={batch_size}"], options="--batch-size", batch_size=32))
    assert fix.sentence == (
        "Halve the batch per GPU: 32 → 16, accumulation 1 → 2; the global batch stays 64 if the script "
        "accumulates: no option of it is known for this, but RANKZERO_ACCUMULATE is 2."
    )


def test_a_script_that_takes_no_batch_is_fixed_by_hand(script) -> None:
    fix = fix_for(script([], options="--width"))
    assert fix.spec is None
    assert fix.sentence == (
        "Halve the batch per GPU in the script and double its gradient accumulation, which keeps the global "
        "batch; with {batch_size} and {accumulate} in its arguments the form sets both."
    )


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (Reason.SCRIPT_ERROR, "rank 0 on gpu-1: ValueError"),
        (
            Reason.OUT_OF_MEMORY,
            "rank 0 on gpu-1: shared memory (/dev/shm) is full, so a data loader's process died",
        ),
        (None, None),
    ],
)
def test_failure_that_a_smaller_batch_does_not_fix_has_no_such_proposal(reason, message) -> None:
    assert suggest_fix(recipe(), reason, message) is None
