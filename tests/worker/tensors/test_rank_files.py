"""Files of ranks: DTensors are put together, whole copies are taken once, anything else is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.worker.tensors.merging import merged, require_equal, tensors_of
from tests.worker.tensors.sources_read import assert_holds
from tests.worker.tensors.zero_saves import importable
from worker.tensors.rankzero_tensors.opening import open_source
from worker.tensors.rankzero_tensors.sources import CheckpointRefused

WEIGHT = torch.arange(35, dtype=torch.float32).reshape(7, 5)
BIAS = torch.linspace(-1, 1, 3).bfloat16()
COUNT = torch.tensor(12)


@pytest.mark.parametrize(
    ("shape", "placements"),
    [
        ((1,), [Shard(0)]),
        ((2,), [Shard(0)]),
        ((4,), [Shard(0)]),
        ((4,), [Shard(1)]),
        ((2, 2), [Replicate(), Shard(0)]),
        ((2, 2), [Shard(0), Shard(1)]),
        ((2, 2), [Shard(0), Shard(0)]),
    ],
)
def test_dtensors_are_put_together(tmp_path: Path, shape: tuple[int, ...], placements: list):
    save_divided(tmp_path / "actor", shape, placements)
    source = open_source(tmp_path / "actor")
    assert source.format == "files of ranks"
    assert_holds(source, {"weight": WEIGHT, "bias": BIAS, "count": COUNT})


def test_the_model_is_found_in_the_folder_of_a_step(tmp_path: Path):
    save_divided(tmp_path / "global_step_20" / "actor", (2,), [Shard(0)])
    (tmp_path / "global_step_20" / "data.pt").write_bytes(b"of the loader")
    assert_holds(open_source(tmp_path / "global_step_20"), {"weight": WEIGHT, "bias": BIAS, "count": COUNT})


def test_the_config_beside_the_ranks_files_belongs_to_the_merged_model(tmp_path: Path):
    save_divided(tmp_path / "global_step_20" / "actor", (2,), [Shard(0)])
    (tmp_path / "global_step_20" / "actor" / "huggingface").mkdir()
    (tmp_path / "global_step_20" / "actor" / "huggingface" / "config.json").write_text("{}")
    merged(tmp_path / "global_step_20", tmp_path / "merged", "--format", "hf")
    assert (tmp_path / "merged" / "config.json").read_text() == "{}"
    require_equal(tensors_of(tmp_path / "merged"), {"weight": WEIGHT, "bias": BIAS, "count": COUNT})


def test_a_missing_rank_is_named(tmp_path: Path):
    save_divided(tmp_path / "actor", (4,), [Shard(0)])
    (tmp_path / "actor" / "model_world_size_4_rank_2.pt").unlink()
    with pytest.raises(CheckpointRefused, match=r"model_world_size_4_rank_2\.pt is missing.*4 ranks"):
        open_source(tmp_path / "actor")


def test_a_missing_rank_is_named_by_the_tensors_where_names_do_not_tell(tmp_path: Path):
    save_divided(tmp_path / "state", (4,), [Shard(0)], name="pytorch_model_fsdp_0_rank{rank}.bin")
    (tmp_path / "state" / "pytorch_model_fsdp_0_rank3.bin").unlink()
    with pytest.raises(CheckpointRefused, match=r"pytorch_model_fsdp_0_rank3\.bin is missing"):
        open_source(tmp_path / "state")


def test_one_ranks_file_is_refused(tmp_path: Path):
    save_divided(tmp_path / "actor", (2,), [Shard(0)])
    with pytest.raises(CheckpointRefused, match="one rank's part of a checkpoint"):
        open_source(tmp_path / "actor" / "model_world_size_2_rank_1.pt")


def test_a_ranks_file_of_another_name_is_refused(tmp_path: Path):
    save_divided(tmp_path / "state", (2,), [Shard(0)], name="part_rank{rank}.pt")
    with pytest.raises(CheckpointRefused, match=r"weight is one rank's part of a tensor \(DTensor\)"):
        open_source(tmp_path / "state" / "part_rank1.pt")


def test_a_model_that_only_rank_0_saved_is_read(tmp_path: Path):
    (tmp_path / "step").mkdir()
    torch.save({"weight": WEIGHT}, tmp_path / "step" / "model_rank0.pt")
    assert_holds(open_source(tmp_path / "step"), {"weight": WEIGHT})
    assert_holds(open_source(tmp_path / "step" / "model_rank0.pt"), {"weight": WEIGHT})


def test_a_model_beside_one_ranks_file_is_read(tmp_path: Path):
    (tmp_path / "step").mkdir()
    torch.save({"weight": WEIGHT}, tmp_path / "step" / "model_000120.pt")
    torch.save({"cache": BIAS}, tmp_path / "step" / "cache_rank0.pt")
    torch.save({"state": BIAS}, tmp_path / "step" / "optim_000120_rank0.pt")
    with pytest.raises(CheckpointRefused):
        open_source(tmp_path / "step")  # which of the two is the model, nothing tells
    (tmp_path / "step" / "cache_rank0.pt").unlink()
    assert_holds(open_source(tmp_path / "step"), {"weight": WEIGHT})


def test_a_whole_model_that_each_rank_saved_is_taken_once(tmp_path: Path):
    save_plain(
        tmp_path / "step", [{"model": {"weight": WEIGHT}, "optimizer": {"step": COUNT + rank}} for rank in (0, 1)]
    )
    assert_holds(open_source(tmp_path / "step"), {"weight": WEIGHT})


def test_parts_that_say_nothing_of_their_place_are_refused(tmp_path: Path):
    save_plain(tmp_path / "step", [{"flat_param": WEIGHT[:3]}, {"flat_param": WEIGHT[4:]}])
    with pytest.raises(CheckpointRefused, match=r"different values of flat_param.*DINOv2.*FULL_STATE_DICT"):
        open_source(tmp_path / "step")


def test_other_kinds_of_parts_are_refused_by_their_class(tmp_path: Path):
    sharded = type("ShardedTensor", (), {"__module__": "framework.sharded_tensor"})
    with importable(sharded):
        save_plain(tmp_path / "step", [{"weight": sharded(), "bias": BIAS}] * 2)
    with pytest.raises(CheckpointRefused, match="weight as ShardedTensor"):
        open_source(tmp_path / "step")


def save_plain(folder: Path, ranks: list[dict]) -> None:
    """Save what each rank has."""
    folder.mkdir()
    for rank, values in enumerate(ranks):
        torch.save(values, folder / f"model_0009999.rank_{rank}.pth")


def save_divided(
    folder: Path, shape: tuple[int, ...], placements: list, name: str = "model_world_size_{count}_rank_{rank}.pt"
) -> None:
    """Save each rank's part of a model, as that rank has it; a process group without other processes is enough."""
    folder.mkdir(parents=True)
    count = torch.Size(shape).numel()
    for rank in range(count):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
        mesh = init_device_mesh("cpu", shape)
        values = {"weight": local_of(WEIGHT, mesh, placements, rank), "count": COUNT}
        values["bias"] = local_of(BIAS, mesh, [Shard(0) if one == Shard(1) else one for one in placements], rank)
        torch.save(values, folder / name.format(count=count, rank=rank))
        torch.save({"state": {}}, folder / f"optim_world_size_{count}_rank_{rank}.pt")
        torch.distributed.destroy_process_group()


def local_of(tensor: torch.Tensor, mesh: torch.distributed.DeviceMesh, placements: list, rank: int) -> DTensor:
    """Return the part of this rank by torch's own cut of a tensor, without asking other ranks."""
    part = tensor
    for dimension, placement in enumerate(placements):
        if isinstance(placement, Shard):
            chunks = list(part.chunk(mesh.size(dimension), placement.dim))
            at = mesh.get_local_rank(dimension)
            part = chunks[at] if at < len(chunks) else part.narrow(placement.dim, 0, 0)
    return DTensor.from_local(
        part.clone(), mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )
