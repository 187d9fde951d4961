"""Weights read by our formats equal those that each framework reads itself: one table of saves and world sizes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.examples.deepspeed_extensions import compiled_extensions
from worker.tensors.rankzero_tensors.opening import open_source

pytestmark = [pytest.mark.long, pytest.mark.training]

WORLD_SIZES = pytest.mark.parametrize("world_size", [1, 2, 4])
FROZEN = {"frozen.weight", "frozen.bias"}
SAVES = {
    "accelerate-fsdp2": "distributed checkpoint",
    "accelerate-fsdp2-ranks": "files of ranks",
    "accelerate-state": "safetensors",
    "accelerate-two-models": "several models",
    "accelerate-shards": "safetensors",
    "lightning-fsdp.ckpt": "distributed checkpoint",
    "transformers-shards": "safetensors",
    "verl": "files of ranks",
}
"""Folder of `accelerate_training.py` -> the format it is read as."""


@WORLD_SIZES
def test_deepspeed_reads_the_same(tmp_path: Path, world_size: int):
    """zero_to_fp32 makes every buffer fp32, and has no frozen parameters with ZeRO 1; ours are as they were saved."""
    require("deepspeed")
    extensions = tmp_path / "extensions"
    shutil.copytree(compiled_extensions(), extensions)
    env = {"TORCH_EXTENSIONS_DIR": str(extensions), "DS_ACCELERATOR": "cpu"}
    saves = train("zero_training.py", world_size, tmp_path / "saves", env)
    assert len(list(saves.glob("*.pt"))) == 7
    for path in sorted(saves.glob("*.pt")):
        name, expected = path.stem, torch.load(path)
        tensors = read(saves / name, f"DeepSpeed ZeRO {name[4]}")
        low = torch.bfloat16 if name.endswith("bf16") else torch.float32
        assert {tensors[frozen].dtype for frozen in FROZEN} == {low}, name
        assert tensors["count"].dtype == torch.int64, name
        assert tensors.keys() - expected.keys() == (FROZEN if name.startswith("zero1") else set()), name
        assert_equal({key: tensors[key].to(value.dtype) for key, value in expected.items()}, expected, name)


@WORLD_SIZES
def test_accelerate_lightning_transformers_and_verl_read_the_same(tmp_path: Path, world_size: int):
    """Only GPT-2's output weights are not in its own files: they are tied to the embedding's."""
    require("accelerate", "lightning", "transformers")
    saves = train("accelerate_training.py", world_size, tmp_path / "saves", {"ACCELERATE_USE_CPU": "true"})
    for name, form in SAVES.items():
        expected = torch.load(saves / f"{name}.pt")
        if name == "transformers-shards":
            del expected["lm_head.weight"]
        assert_equal(read(saves / name, form), expected, name)


def require(*frameworks: str) -> None:
    """Skip without frameworks; `make test-long` installs them."""
    if missing := [name for name in frameworks if find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")


def train(script: str, world_size: int, folder: Path, env: Mapping[str, str]) -> Path:
    """Run a script of this folder on so many ranks; return the folder that it wrote."""
    folder.mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
    command = [*launcher, str(Path(__file__).with_name(script)), str(folder)]
    result = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"} | env, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stderr[-5000:]
    return folder


def read(folder: Path, form: str) -> dict[str, torch.Tensor]:
    """Read all tensors by our own format."""
    source = open_source(folder)
    assert source.format == form
    tensors = {name: source.read(name) for name in source.tensors}
    source.close()
    return tensors


def assert_equal(tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], case: str) -> None:
    """Both have the same names, types and values."""
    assert tensors.keys() == expected.keys(), case
    for name, value in expected.items():
        torch.testing.assert_close(tensors[name], value, rtol=0, atol=0, msg=f"{case}: {name} differs")
