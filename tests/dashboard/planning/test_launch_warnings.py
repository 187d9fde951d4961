"""A plan is told what its script says about itself: what is not handed over, what is missing, how it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.planning.launch_warnings import launch_warnings
from dashboard.planning.resolve import ClusterNodes, Resolved, resolve
from dashboard.script_reader.targets import script_or_problem
from domain.spec import RunSpec

DDP = """
import argparse, os
import torch.distributed as dist
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=256)
p.add_argument("--lr", type=float, default=0.1)
p.add_argument("--resume", default="")
print(os.environ["LOCAL_RANK"])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(DDP)
    return path


def warnings(spec: RunSpec) -> list[str]:
    return launch_warnings(spec, script_or_problem(spec))


def said(path: Path, **asked) -> str:
    return " ".join(warnings(RunSpec(target=str(path), gpus_per_node=2, **asked)))


def resolved(path: Path, **asked) -> Resolved:
    spec = RunSpec(target=str(path), gpus_per_node=2, **asked)
    return resolve(spec, ClusterNodes())


def test_a_resume_that_would_begin_anew_is_said_before_it_happens(script: Path) -> None:
    assert "when resumed, the run starts over. Add --resume={resume}." in said(script)
    assert said(script, args=["--resume={resume}"]) == ""


def test_a_required_argument_that_is_missing_is_named(script: Path) -> None:
    script.write_text(DDP + 'p.add_argument("data")\np.add_argument("--out", required=True)')
    assert "train.py requires data and --out, which the arguments do not contain." in said(script)
    assert "needs" not in said(script, args=["--out=x", "/data"])


def test_a_launcher_that_does_not_fit_is_said_with_the_line(script: Path) -> None:
    script.write_text("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)\n")
    assert "The launcher is torchrun, but it starts its processes itself: mp.spawn on line 2." in said(script)
    assert "launcher" not in said(script, launcher="python")


def test_empty_field_keeps_the_default_of_the_script(script: Path) -> None:
    script.write_text(
        DDP + 'p.add_argument("--accumulation-steps", default=8)\np.add_argument("--dtype", default="bfloat16")'
    )
    assert "own --accumulation-steps is 8" in said(script)
    assert "own --dtype is bfloat16; fp32 does not change it" in said(script)


def test_the_scripts_own_rate_is_scaled_where_it_can_be_passed(script: Path) -> None:
    assert resolved(script, lr_scaling="linear", args=["--lr={lr}"]).spec.scaled_lr == 0.2
    assert resolved(script, lr_scaling="linear").spec.args == ["--lr={lr}"]
    assert resolved(script, lr_scaling="linear", args=["--lr=0.5"]).spec.lr is None


def test_the_scripts_own_batch_makes_the_global_batch(script: Path) -> None:
    assert resolved(script).figures().global_batch_size == 512
    assert resolved(script, args=["--batch-size=8"]).figures().batch_size is None
    assert resolved(script).figures().lr == 0.1
    script.write_text(DDP + "args.batch_size = args.batch_size // dist.get_world_size()")
    assert resolved(script).figures().global_batch_size is None


def test_constants_of_a_script_without_options_make_its_figures(script: Path) -> None:
    script.write_text("from torch.utils.data import DataLoader\nDataLoader(data, batch_size=32)\n")
    assert resolved(script).figures().global_batch_size == 64


def test_a_file_that_is_no_program_is_named_with_its_line(script: Path) -> None:
    script.write_text("def (:")
    assert "train.py cannot be read as Python: line 1" in said(script)
    script.unlink()
    assert said(script) == ""


def test_a_rate_scaled_eightfold_comes_with_warm_up_advice_until_warm_up_is_given() -> None:
    asked = {"target": "image_classifier", "gpus_per_node": 8, "lr": 0.1, "lr_scaling": "linear"}
    assert any("5 epochs or 500 steps" in text for text in warnings(RunSpec(**asked)))
    assert warnings(RunSpec(**asked, warmup_steps=500)) == []


def test_fsdp_with_a_script_that_does_not_shard_is_said_aloud(script: Path) -> None:
    assert "Nothing in train.py shards its parameters" in said(script, strategy="fsdp")
    assert "shards" not in said(script, strategy="ddp")
    for text in (
        "from torch.distributed.fsdp import fully_shard",
        'strategy = os.environ["RANKZERO_STRATEGY"]',
        "model = FullyShardedDataParallel(model)",
    ):
        script.write_text(f"{DDP}\n{text}")
        assert "shards" not in said(script, strategy="fsdp"), text
    script.write_text(DDP)
    assert "shards" not in said(script, strategy="fsdp", args=["--resume={resume}", "--trainer.strategy=fsdp"])


def test_dp_with_a_script_that_uses_one_gpu_is_said_aloud(script: Path) -> None:
    assert "which uses one of its 2 GPUs" in said(script, strategy="dp")
    script.write_text("import torch\nmodel = torch.nn.DataParallel(model)")
    assert "which uses one of" not in said(script, strategy="dp")
