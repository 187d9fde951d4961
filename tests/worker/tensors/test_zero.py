"""Saves of DeepSpeed ZeRO, by files written by hand: each stage, world size and arrangement that people have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worker.tensors.merging import merged, require_equal, tensors_of
from tests.worker.tensors.sources_read import assert_holds
from tests.worker.tensors.zero_saves import ZeroSave, importable
from worker.tensors.rankzero_tensors.opening import open_source
from worker.tensors.rankzero_tensors.sources import CheckpointRefused

MATRIX = torch.arange(35, dtype=torch.float32).reshape(5, 7) + 0.123456
BIAS = torch.linspace(-1, 1, 7)
NORM = torch.tensor(3.25)
LARGE = torch.linspace(0, 1, 64).reshape(4, 4, 4)
GROUPS = [{"layer.weight": MATRIX, "norm.scale": NORM}, {"layer.bias": BIAS, "head.weight": LARGE}]
TRAINED = {name: value for group in GROUPS for name, value in group.items()}


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize(("stage", "has_places"), [(1, True), (1, False), (2, True), (2, False), (3, True)])
def test_fp32_weights_of_all_ranks_are_put_together(tmp_path: Path, stage: int, has_places: bool, world_size: int):
    ZeroSave(GROUPS, stage, world_size, has_places=has_places).write(tmp_path / "global_step30")
    source = open_source(tmp_path / "global_step30")
    assert source.format == f"DeepSpeed ZeRO {stage}"
    assert_holds(source, TRAINED)
    assert source.notes == ["4 weights are the optimizer's own fp32 values, not the bfloat16 of the model."]
    assert len(source.files) == world_size * (2 if stage == 3 else 1) + (stage < 3)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_is_not_trained_keeps_its_type(tmp_path: Path, stage: int):
    frozen = {"embedding.weight": torch.randn(3, 5).bfloat16()}
    buffers = {"norm.count": torch.tensor(12), "norm.mean": torch.randn(3).half(), "mask": torch.tensor([True, False])}
    ZeroSave(GROUPS, stage, 2, frozen=frozen, buffers=buffers).write(tmp_path / "save")
    assert_holds(open_source(tmp_path / "save"), TRAINED | frozen | buffers)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_shared_parameters_are_tied(tmp_path: Path, stage: int):
    shared = {"out.weight": "layer.weight"}
    ZeroSave(GROUPS, stage, 2, shared=shared).write(tmp_path / "save")
    source = open_source(tmp_path / "save")
    assert source.tied == shared
    assert_holds(source, TRAINED | {"out.weight": MATRIX})


def test_parameters_without_values_are_not_tied_to_each_other(tmp_path: Path):
    frozen = {"empty": torch.empty(0, 3), "other": torch.empty(0)}
    save = ZeroSave(GROUPS, 2, 2, frozen=frozen)
    save.client_state = {"shared_params": {"other": "empty"}}  # DeepSpeed compares addresses, and theirs is 0
    save.write(tmp_path / "save")
    source = open_source(tmp_path / "save")
    assert source.tied == {}
    assert_holds(source, TRAINED | frozen)


def test_names_of_wrappers_are_gone(tmp_path: Path):
    save = ZeroSave([{"_forward_module.layer._orig_mod.weight": MATRIX, "_forward_module.layer.bias": BIAS}])
    assert_holds(open_source(save.write(tmp_path / "save")), {"layer.weight": MATRIX, "layer.bias": BIAS})


def test_merged_weights_are_proven(tmp_path: Path):
    frozen = {"embedding.weight": torch.randn(3, 5).bfloat16()}
    save = ZeroSave(GROUPS, 3, 4, frozen=frozen, shared={"out.weight": "layer.weight"})
    document = merged(save.write(tmp_path / "save"), tmp_path / "merged")
    require_equal(tensors_of(tmp_path / "merged"), TRAINED | frozen)
    assert document["tied"] == {"out.weight": "layer.weight"}
    assert document["proof"]["sums"]["equal"] == len(TRAINED | frozen)
    assert document["proof"]["samples"]["parts"] > len(TRAINED | frozen)
    assert len(document["sources"]) == 8


LIMITED = """
import re, resource, sys
from pathlib import Path
from rankzero_tensors import merge
from rankzero_tensors.reports import ProgressReport

kilobytes = int(re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
resource.setrlimit(resource.RLIMIT_DATA, (kilobytes * 1024 + int(sys.argv[3]),) * 2)
merge.run(sys.argv[1:3], ProgressReport())
"""
"""Merges with so many bytes of memory beside what the imports took; mapped files are not counted."""


@pytest.mark.real
@pytest.mark.parametrize("stage", [2, 3])
def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path, stage: int):
    mib = 1024 * 1024
    groups = [{f"layer.{layer}.weight": torch.full((2 * mib,), float(layer)) for layer in range(20)}]
    ZeroSave(groups, stage, 2).write(tmp_path / "save")
    arguments = [str(tmp_path / "save"), str(tmp_path / "merged"), str(96 * mib)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "worker/tensors"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-P", "-c", LIMITED, *arguments], env=env, check=True)
    require_equal(tensors_of(tmp_path / "merged"), dict(groups[0]))


# -- folders -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["global_step30", "checkpoint", "pytorch_model"])  # HF Trainer, Lightning, Accelerate
def test_the_save_is_found_in_the_folder_of_a_trainer(tmp_path: Path, tag: str):
    ZeroSave(GROUPS).write(tmp_path / tag)
    (tmp_path / "latest").write_text(tag)
    (tmp_path / "scheduler.pt").write_bytes(b"of no interest")
    assert_holds(open_source(tmp_path), TRAINED)


def test_latest_chooses_among_several_saves(tmp_path: Path):
    ZeroSave([{"weight": MATRIX}]).write(tmp_path / "global_step30")
    ZeroSave([{"weight": MATRIX + 1}]).write(tmp_path / "global_step60")
    with pytest.raises(CheckpointRefused, match=r"several saves of DeepSpeed \(global_step30, global_step60\)"):
        open_source(tmp_path)
    (tmp_path / "latest").write_text("global_step60\n")
    assert_holds(open_source(tmp_path), {"weight": MATRIX + 1})


# -- refused -----------------------------------------------------------------------------------


def test_a_missing_partition_is_named(tmp_path: Path):
    folder = ZeroSave(GROUPS, 2, 4).write(tmp_path / "save")
    (folder / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
    with pytest.raises(CheckpointRefused, match=r"bf16_zero_pp_rank_2_mp_rank_00_optim_states\.pt is missing.*4 ranks"):
        open_source(folder)


def test_a_missing_model_file_of_a_rank_is_named(tmp_path: Path):
    folder = ZeroSave(GROUPS, 3, 2).write(tmp_path / "save")
    (folder / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
    with pytest.raises(CheckpointRefused, match=r"zero_pp_rank_1_mp_rank_00_model_states\.pt is missing"):
        open_source(folder)


def test_partitions_left_of_a_larger_save_are_refused(tmp_path: Path):
    folder = ZeroSave(GROUPS, 2, 2).write(tmp_path / "save")
    ZeroSave(GROUPS, 2, 4).write(tmp_path / "larger")
    name = "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"
    (tmp_path / "larger" / name).rename(folder / name)
    with pytest.raises(CheckpointRefused, match="left of another save"):
        open_source(folder)


@pytest.mark.parametrize("stage", [2, 3])
def test_partitions_of_another_model_are_refused(tmp_path: Path, stage: int):
    folder = ZeroSave(GROUPS, stage, 2, has_places=False).write(tmp_path / "save")
    other = ZeroSave([{"weight": MATRIX}, {"bias": BIAS}], stage, 2, has_places=False).write(tmp_path / "other")
    for file in folder.glob("*_optim_states.pt"):
        (other / file.name).replace(file)
    with pytest.raises(CheckpointRefused, match="of different saves"):
        open_source(folder)


def test_without_the_optimizers_files_the_model_keeps_its_own_weights(tmp_path: Path):
    folder = ZeroSave(GROUPS).write(tmp_path / "save")
    for file in folder.glob("*_optim_states.pt"):
        file.unlink()
    source = open_source(folder)
    assert_holds(source, {name: value.bfloat16() for name, value in TRAINED.items()})
    assert "weights are those of the model (bfloat16)" in source.notes[0]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("mp_rank_01_model_states.pt", "divided over 2 ranks"),
        ("layer_00-model_states.pt", "pipeline or experts"),
        ("layer_0_expert_1_mp_rank_00_model_states.pt", "pipeline or experts"),
    ],
)
def test_divided_models_are_refused_by_name(tmp_path: Path, file: str, words: str):
    folder = ZeroSave(GROUPS).write(tmp_path / "save")
    torch.save({}, folder / file)
    with pytest.raises(CheckpointRefused, match=f"{words}.*ds_to_universal"):
        open_source(folder)


def test_a_damaged_partition_is_named(tmp_path: Path):
    folder = ZeroSave(GROUPS).write(tmp_path / "save")
    (folder / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").write_bytes(b"torn")
    with pytest.raises(CheckpointRefused, match=r"bf16_zero_pp_rank_1_mp_rank_00_optim_states\.pt"):
        open_source(folder)


# -- unknown classes ---------------------------------------------------------------------------


class Harmful:
    """Its object would run a function when it is unpickled."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('it ran')",))


def test_objects_of_a_script_beside_the_weights_are_neither_imported_nor_run(tmp_path: Path):
    own = type("Settings", (), {"__module__": "scripts.settings", "lr": 0.1})
    with importable(own):
        folder = ZeroSave(GROUPS, client_state={"settings": own(), "harmful": Harmful()}).write(tmp_path / "save")
    assert_holds(open_source(folder), TRAINED)
