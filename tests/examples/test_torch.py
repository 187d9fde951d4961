"""The examples that need torch alone: launched through the API, their metrics and checkpoints are right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.examples.trained import Examples


@pytest.mark.long  # tests/end_to_end/test_hosts.py trains it on two hosts
def test_ddp(examples: Examples, tmp_path: Path):
    trained = examples.run("ddp.py", "--batch-size", "{batch_size}", "--lr", "{lr}", batch_size=128, lr=0.05)
    curves = trained.assert_tensorboard_reads_the_same()
    assert [step for step, _, _ in curves["train/loss"]] == list(range(1, 65))  # 4 epochs of 4096 / (2 x 128)
    trained.assert_learns(curves["train/loss"], below=0.3)
    assert set(trained.checkpoints()) == {f"checkpoint_{epoch}.pt" for epoch in (1, 2, 3, 4)}
    state = torch.load(trained.download("checkpoint_4.pt", tmp_path), weights_only=True)
    assert state["step"] == 64
    assert set(state["model"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}


@pytest.mark.long
def test_fsdp2_with_distributed_checkpoints(examples: Examples, tmp_path: Path):
    trained = examples.run("fsdp2.py")
    curves = trained.assert_tensorboard_reads_the_same()
    assert set(curves) == {"loss", "grad_norm"}
    assert [step for step, _, _ in curves["loss"]] == list(range(1, 61))
    trained.assert_learns(curves["loss"], below=1.0)
    checkpoints = trained.checkpoints()
    assert {name: one["step"] for name, one in checkpoints.items()} == {
        "checkpoints/step_30.tar": 30,
        "checkpoints/step_60.tar": 60,
    }
    state = load_distributed(trained.download("checkpoints/step_60.tar", tmp_path), tmp_path / "whole.pt")
    assert state["step"] == 60
    assert state["model"]["0.weight"].shape == (64, 64)


@pytest.mark.filterwarnings("ignore")  # torch's own, of a single process reading a distributed checkpoint
def load_distributed(folder: Path, whole: Path) -> dict:
    """Put the shards of all ranks together."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    (shards,) = {path.parent for path in folder.rglob("*.distcp")}
    dcp_to_torch_save(shards, whole)
    return torch.load(whole, weights_only=True)


@pytest.mark.long
def test_spawn(examples: Examples, tmp_path: Path):
    trained = examples.run("spawn.py", "--processes", "2", launcher="python")
    curves = trained.assert_tensorboard_reads_the_same()
    assert len(curves["loss"]) == 3 * 2048 // (2 * 32)
    trained.assert_learns(curves["loss"], below=0.1)
    state = torch.load(trained.download("spawned.pth", tmp_path), weights_only=True)
    assert set(state) == {"module.weight", "module.bias"}


@pytest.mark.long
def test_data_parallel(examples: Examples, tmp_path: Path):
    trained = examples.run("data_parallel.py", strategy="dp")
    curves = trained.assert_tensorboard_reads_the_same()
    assert len(curves["Loss/train"]) == 5 * 2048 // 64
    trained.assert_learns(curves["Loss/train"], below=0.5)
    assert [step for step, _, _ in curves["Accuracy/test"]] == [1, 2, 3, 4, 5]
    assert curves["Accuracy/test"][-1][1] > 0.9
    state = torch.load(trained.download("model.pt", tmp_path), weights_only=True)
    assert state["module.0.weight"].shape == (64, 2)


@pytest.mark.long
def test_legacy_launch(examples: Examples, tmp_path: Path):
    trained = examples.run("legacy_launch.py", launcher="launch")
    curves = trained.assert_tensorboard_reads_the_same()
    assert [step for step, _, _ in curves["loss"]] == list(range(3 * 2048 // (2 * 32)))
    trained.assert_learns(curves["loss"], below=0.4)
    assert set(trained.checkpoints()) == {f"checkpoint-{epoch}.pth" for epoch in (1, 2, 3)}
    state = torch.load(trained.download("checkpoint-3.pth", tmp_path), weights_only=True)
    assert state["epoch"] == 3
    assert "module.0.weight" in state["state_dict"]


@pytest.mark.long
def test_print_only(examples: Examples, tmp_path: Path):
    trained = examples.run("print_only.py")
    assert trained.curves() == {}
    curves = trained.curves("printed")
    assert {"printed/loss", "printed/acc@1"} <= set(curves), set(curves)
    assert [step for step, _, _ in curves["printed/loss"]] == [
        64 * epoch + i for epoch in range(3) for i in range(10, 61, 10)
    ]
    assert [value for _, value, _ in curves["printed/epoch"]] == [0.0, 1.0, 2.0]
    trained.assert_learns(curves["printed/loss"], below=0.8)
    state = torch.load(trained.download("checkpoint.pth.tar", tmp_path), weights_only=True)
    assert state["epoch"] == 3


@pytest.mark.long
def test_tensorboardx(examples: Examples, tmp_path: Path):
    trained = examples.run("tensorboardx_writer.py")
    curves = trained.assert_tensorboard_reads_the_same()
    assert [step for step, _, _ in curves["sine/loss"]] == list(range(200))
    trained.assert_learns(curves["sine/loss"], below=0.1)
    assert len(curves) == 2, set(curves)
    state = torch.load(trained.download("sine.pt", tmp_path), weights_only=True)
    assert state["0.weight"].shape == (32, 1)


@pytest.mark.long
def test_rpc(examples: Examples, tmp_path: Path):
    trained = examples.run("rpc.py")
    curves = trained.assert_tensorboard_reads_the_same()
    assert [step for step, _, _ in curves["rpc/loss"]] == list(range(1, 101))
    trained.assert_learns(curves["rpc/loss"], below=1.0)
    state = torch.load(trained.download("model.pt", tmp_path), weights_only=True)
    assert len(state["towers"]) == 1


@pytest.mark.long
def test_a_pipeline_of_two_stages(examples: Examples, tmp_path: Path):
    trained = examples.run("pipeline.py")
    curves = trained.assert_tensorboard_reads_the_same()
    assert [step for step, _, _ in curves["pipeline/loss"]] == list(range(1, 81))
    trained.assert_learns(curves["pipeline/loss"], below=0.1)
    assert set(trained.checkpoints()) == {"stage0.pt", "stage1.pt"}
    state = torch.load(trained.download("stage1.pt", tmp_path), weights_only=True)
    assert state["2.weight"].shape == (4, 32)
