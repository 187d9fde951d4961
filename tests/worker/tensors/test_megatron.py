"""Megatron's checkpoints: exported by the bridge that the Python has, otherwise refused by name.

The real bridge needs CUDA; the one here has its two calls, and writes what it was asked for."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

from tests.worker.tensors.sources_read import assert_holds
from worker.tensors.rankzero_tensors.opening import open_source
from worker.tensors.rankzero_tensors.sources import CheckpointRefused

BRIDGE = """
from pathlib import Path
import torch
from safetensors.torch import save_file

class AutoBridge:
    @classmethod
    def from_auto_config(cls, megatron_path, hf_model_id):
        bridge = cls()
        bridge.config = (Path(hf_model_id) / "config.json").read_text()
        return bridge

    def export_ckpt(self, megatron_path, hf_path, show_progress=True):
        print("Converting ...")
        if self.config == "unsupported":
            raise ValueError("no bridge for this architecture")
        save_file({"model.embed.weight": torch.arange(6.0)}, Path(hf_path) / "model.safetensors")
"""


@pytest.fixture
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge in the Python that trains, and a folder for what it writes."""
    package = tmp_path / "site" / "megatron" / "bridge"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BRIDGE)
    (tmp_path / "exports").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "exports"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    for name in ("megatron", "megatron.bridge"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(params=["mp_rank_00", "mp_rank_01_003", "torch_dist"])
def checkpoint(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A checkpoint of two iterations, as Megatron writes it."""
    for iteration in ("iter_0000010", "iter_0000020"):
        folder = tmp_path / "checkpoint" / iteration
        folder.mkdir(parents=True)
        if request.param == "torch_dist":
            (folder / ".metadata").write_bytes(b"")
            (folder / "common.pt").write_bytes(b"")
        else:
            (folder / request.param).mkdir()
            (folder / request.param / "model_optim_rng.pt").write_bytes(b"")
    return tmp_path / "checkpoint"


def test_it_is_refused_by_name_where_the_python_has_no_bridge(checkpoint: Path):
    with pytest.raises(
        CheckpointRefused, match=r"iter_0000020 is a checkpoint of Megatron.*export_ckpt.*pip install megatron"
    ):
        open_source(checkpoint)


@pytest.mark.usefixtures("bridge")
def test_the_bridge_exports_the_last_iteration(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (checkpoint / "config.json").write_text("{}")
    source = open_source(checkpoint)
    assert capsys.readouterr().out == ""  # where our own lines are printed
    assert {file.relative_to(checkpoint).parts[0] for file in source.files} == {"iter_0000020"}
    assert_holds(source, {"model.embed.weight": torch.arange(6.0)})
    assert list((tmp_path / "exports").iterdir()) == []


@pytest.mark.usefixtures("bridge")
def test_the_bridge_needs_the_models_config(checkpoint: Path):
    with pytest.raises(CheckpointRefused, match=r"needs the config\.json"):
        open_source(checkpoint)


@pytest.mark.usefixtures("bridge")
def test_what_the_bridge_refuses_is_refused(checkpoint: Path, tmp_path: Path):
    (checkpoint / "config.json").write_text("unsupported")
    with pytest.raises(CheckpointRefused, match="does not convert iter_0000020: no bridge for this architecture"):
        open_source(checkpoint)
    assert list((tmp_path / "exports").iterdir()) == []
