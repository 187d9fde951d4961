"""Checkpoints of real ranks, merged: equal to what torch itself loads, from however many ranks they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.worker.tensors.merging import merged, require_equal, tensors_of

pytestmark = [pytest.mark.real, pytest.mark.training]


@pytest.fixture(scope="module", params=[1, 2, 4], ids="{0} ranks".format)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to which that many ranks have saved."""
    folder = tmp_path_factory.mktemp("ranks")
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.param}"]
    script = Path(__file__).with_name("ranks.py")
    subprocess.run([*program, str(script), str(folder)], check=True, env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin"})
    return folder


@pytest.mark.parametrize("name", ["fsdp2", "nested", "hf"])
def test_fsdp2_equals_the_whole_model_that_torch_gathers(saved: Path, tmp_path: Path, name: str) -> None:
    expected = torch.load(saved / "fsdp2.pt", weights_only=True)
    if name == "hf":  # its writer refuses tied weights
        del expected["head.weight"]
    result = merged(saved / name, tmp_path / "out")
    require_equal(tensors_of(tmp_path / "out"), expected)
    assert result["proof"]["samples"]["parts"] > 0


def test_fsdp2_equals_what_torchs_own_converter_writes(saved: Path, tmp_path: Path) -> None:
    dcp_to_torch_save(saved / "fsdp2", tmp_path / "whole.pt")
    merged(saved / "fsdp2", tmp_path / "out")
    expected = torch.load(tmp_path / "whole.pt", weights_only=False)["model"]
    require_equal(tensors_of(tmp_path / "out"), expected)


@pytest.mark.parametrize("name", ["ddp", "ddp.pt"])
def test_ddp_equals_its_module(saved: Path, tmp_path: Path, name: str) -> None:
    result = merged(saved / name, tmp_path / "out")
    expected = torch.load(saved / "ddp.pt", weights_only=True)["model"]
    plain = {name.removeprefix("module."): tensor for name, tensor in expected.items()}
    require_equal(tensors_of(tmp_path / "out"), {name: plain[name] for name in plain if name not in result["tied"]})
