"""The examples that need a framework on top of torch, which `make test-long` installs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.examples.deepspeed_extensions import compiled_extensions
from tests.examples.trained import EXAMPLES, Examples

pytestmark = pytest.mark.long


def test_accelerate(examples: Examples, tmp_path: Path):
    trained = examples.run("accelerate_loop.py")
    curves = trained.assert_tensorboard_reads_the_same()
    steps = [step for step, _, _ in curves["train/loss"]]
    assert steps == list(range(5, 97, 5))  # 3 epochs of 2048 / (2 x 32): the two ranks train together
    trained.assert_learns(curves["train/loss"], below=0.15)
    assert {"train/loss", "train/lr"} <= set(curves)
    names = {f"output/epoch_{epoch}.tar" for epoch in (1, 2, 3)}
    assert names <= set(trained.checkpoints())
    folder = trained.download("output/epoch_3.tar", tmp_path) / "epoch_3"
    assert load_file(folder / "model.safetensors")["0.weight"].shape == (64, 8)
    assert {path.name for path in folder.glob("random_states_*")} == {
        "random_states_0.pkl",
        "random_states_1.pkl",
    }
    model = next(name for name in trained.checkpoints() if "model" in name)
    assert load_file(trained.download(model, tmp_path))["2.weight"].shape == (1, 64)


def test_hf_trainer(examples: Examples, tmp_path: Path):
    trained = examples.run("hf_trainer.py")
    curves = trained.assert_tensorboard_reads_the_same()
    assert [step for step, _, _ in curves["train/loss"]] == list(range(5, 61, 5))
    assert [step for step, _, _ in curves["eval/loss"]] == [30, 60]
    assert {"train/grad_norm", "train/learning_rate", "train/epoch"} <= set(curves)
    trained.assert_learns(curves["train/loss"], below=2.0)
    names = {"output/checkpoint-30.tar", "output/checkpoint-60.tar", "output/final.tar"}
    assert set(trained.checkpoints()) == names
    assert trained.checkpoints()["output/checkpoint-60.tar"]["step"] == 60
    folder = trained.download("output/checkpoint-60.tar", tmp_path) / "checkpoint-60"
    assert load_file(folder / "model.safetensors")["transformer.wte.weight"].shape == (32, 32)
    assert {path.name for path in folder.glob("rng_state_*")} == {"rng_state_0.pth", "rng_state_1.pth"}


@pytest.mark.parametrize(("strategy", "launcher"), [("ddp", "torchrun"), ("ddp_spawn", "python")])
def test_lightning(examples: Examples, tmp_path: Path, strategy: str, launcher: str):
    trained = examples.run("lightning_trainer.py", "--strategy", strategy, "--devices", "2", launcher=launcher)
    curves = trained.assert_tensorboard_reads_the_same()
    assert set(curves) == {"train_loss", "val_loss", "val_acc", "epoch", "hp_metric"}
    assert len(curves["train_loss"]) == 168 // 10  # 3 epochs of 3584 / (2 x 32) steps
    assert len(curves["val_loss"]) == 3
    trained.assert_learns(curves["train_loss"], below=0.4)
    assert curves["val_acc"][-1][1] > 0.85
    last = "lightning_logs/version_0/checkpoints/epoch=2-step=168.ckpt"
    assert trained.checkpoints()[last]["step"] == 168
    state = torch.load(trained.download(last, tmp_path), weights_only=True)
    assert state["global_step"] == 168
    assert state["state_dict"]["layers.0.weight"].shape == (64, 16)


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("fsdp", "ValueError: The strategy `fsdp` requires a GPU accelerator"),
        ("deepspeed", "RuntimeError: The DeepSpeed strategy is only supported on CUDA GPUs"),
    ],
)
def test_refusal_of_lightning_without_a_gpu_is_shown(examples: Examples, strategy: str, sentence: str):
    product = examples.product
    run_id = product.launch(EXAMPLES / "lightning_trainer.py", gpus_per_node=2, args=["--strategy", strategy])
    run = product.wait_state(run_id, timeout_s=240)
    assert (run["state"], run["reason"]) == ("failed", "script error"), run
    assert sentence in run["message"]


def test_deepspeed_zero_1(examples: Examples, tmp_path: Path):
    extensions = tmp_path / "extensions"
    shutil.copytree(compiled_extensions(), extensions)
    env = {"TORCH_EXTENSIONS_DIR": str(extensions)}
    trained = examples.run("deepspeed_zero1.py", env=env)
    curves = trained.assert_tensorboard_reads_the_same()
    loss = curves["Train/loss"]
    assert [step for step, _, _ in loss] == [16 * 2 * step for step in range(1, 61)]  # DeepSpeed counts samples
    assert [step for step, _, _ in curves["Train/Samples/lr"]] == [step for step, _, _ in loss]
    trained.assert_learns(loss, below=0.8)
    names = {"checkpoints/global_step30.tar", "checkpoints/global_step60.tar"}
    assert names <= set(trained.checkpoints())
    folder = trained.download("checkpoints/global_step60.tar", tmp_path) / "global_step60"
    assert sorted(path.name for path in folder.glob("*.pt")) == [
        "mp_rank_00_model_states.pt",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ]
