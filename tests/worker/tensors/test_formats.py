"""What each format's reader finds in its files, and what it refuses."""

from __future__ import annotations

import json
import os
import pickle
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.worker.tensors.merging import merged, model, require_equal, tensors_of
from worker.tensors.rankzero_tensors.dtypes import facts_of
from worker.tensors.rankzero_tensors.model_part import model_part
from worker.tensors.rankzero_tensors.opening import open_source
from worker.tensors.rankzero_tensors.pieces import BytesPiece, PiecedSource, PiecedTensor
from worker.tensors.rankzero_tensors.sources import CheckpointRefused

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # DCP without ranks


def read_all(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, by its reader."""
    source = open_source(path)
    try:
        found = {name: source.read(name) for name in source.tensors}
        for name, tensor in found.items():
            assert facts_of(tensor.shape, tensor.dtype) == source.tensors[name]
            for place, part in source.samples(name):
                assert torch.equal(tensor[place].reshape(-1).view(torch.uint8), part.reshape(-1).view(torch.uint8))
        return found
    finally:
        source.close()


def save_dcp(state: dict[str, Any], folder: Path) -> Path:
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


# -- pieces ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_grid_of_pieces_becomes_the_whole(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), max_size=3))
    dtype = data.draw(st.sampled_from([torch.float32, torch.int16, torch.bool, torch.float8_e5m2]))
    count = facts_of(shape, dtype).nbytes
    whole = torch.frombuffer(bytearray(value % 2 for value in range(count)) or bytearray(1), dtype=torch.uint8)
    tensor = whole[:count].clone().view(dtype).reshape(shape)
    cuts = [sorted({0, size, data.draw(st.integers(0, size))}) for size in shape]
    path = tmp_path_factory.mktemp("pieces") / "bytes"
    pieces = _written(path, tensor, cuts)
    source = PiecedSource("test", [path], {"w": PiecedTensor("w", facts_of(shape, dtype), pieces)}, [])
    assert torch.equal(source.read("w").view(torch.uint8), tensor.view(torch.uint8)) if shape else True


def _written(path: Path, tensor: torch.Tensor, cuts: list[list[int]]) -> list[BytesPiece]:
    """Write each block between the cuts, one after another."""
    grids: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for ends in cuts:
        spans = list(pairwise(ends)) or [(0, 0)]
        grids = [((*at, begin), (*sizes, end - begin)) for at, sizes in grids for begin, end in spans]
    pieces = []
    with path.open("wb") as file:
        for at, sizes in grids:
            part = tensor[tuple(slice(begin, begin + size) for begin, size in zip(at, sizes, strict=True))]
            pieces.append(BytesPiece(path, file.tell(), at, sizes))
            file.write(bytes(part.contiguous().reshape(-1).view(torch.uint8).tolist()))
    return pieces


def test_a_part_larger_than_the_strip_is_read_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.tensors.rankzero_tensors.memory.STRIP_BYTES", 40)
    tensor = torch.arange(3 * 4 * 10.0).reshape(3, 4, 10)
    pieces = _written(tmp_path / "bytes", tensor, [[0, 3], [0, 1, 4], [0, 7, 10]])
    whole = PiecedTensor("w", facts_of(tensor.shape, tensor.dtype), pieces)
    assert torch.equal(PiecedSource("test", [], {"w": whole}, []).read("w"), tensor)


def test_pieces_that_leave_a_hole_are_refused(tmp_path: Path) -> None:
    piece = BytesPiece(tmp_path / "bytes", 0, (0, 0), (2, 4))
    with pytest.raises(CheckpointRefused, match=r"pieces of w do not make up its shape \[4, 4\]"):
        PiecedTensor("w", facts_of([4, 4], torch.float32), [piece])


# -- distributed checkpoints -------------------------------------------------------------------


def test_a_distributed_checkpoint_equals_what_torch_makes_of_it(tmp_path: Path) -> None:
    folder = save_dcp({"model": model(), "optimizer": {"state": {"m": torch.ones(3)}}, "step": 3}, tmp_path / "in")
    dcp_to_torch_save(folder, tmp_path / "whole.pt")
    expected = torch.load(tmp_path / "whole.pt", weights_only=True)["model"]
    require_equal(read_all(folder), expected)
    require_equal(read_all(folder), model())


def test_a_turned_tensor_keeps_its_values(tmp_path: Path) -> None:
    turned = torch.arange(12.0).reshape(3, 4).t()
    assert torch.equal(read_all(save_dcp({"w": turned}, tmp_path / "in"))["w"], turned)


@pytest.mark.parametrize(
    ("nest", "beside"),
    [
        (lambda state: {"app": {"model": state, "optim": {"m": torch.ones(2)}}}, "app.optim"),
        (lambda state: {"state_dict": {"model": state, "optimizer": {"m": torch.ones(2)}}}, "state_dict.optimizer"),
        (lambda state: {**state, "optimizer": {"m": torch.ones(2)}}, "optimizer"),
        (lambda state: {"net": state, "step": torch.tensor(1)}, "step"),
        (lambda state: {"epoch_3": {"model": state, "ema": state}}, "epoch_3.ema"),
    ],
)
def test_the_model_is_found_among_other_dictionaries(tmp_path: Path, nest: Any, beside: str) -> None:
    folder = save_dcp(nest(model()), tmp_path / "in")
    require_equal(read_all(folder), model())
    assert beside in open_source(folder).notes[0]
    torch.save(nest(model()), tmp_path / "m.pt")
    require_equal(read_all(tmp_path / "m.pt"), model())


def test_a_models_own_dictionaries_are_joined() -> None:
    names = model_part([("model", "encoder", "w"), ("model", "head", "w"), ("optimizer", "w")]).names
    assert list(names.values()) == ["encoder.w", "head.w"]


def test_a_folder_of_model_and_optimizer_is_the_model(tmp_path: Path) -> None:
    save_dcp(model(), tmp_path / "step-10/model")
    save_dcp({"m": torch.ones(3)}, tmp_path / "step-10/optim")
    require_equal(read_all(tmp_path / "step-10"), model())


def test_a_missing_ranks_file_is_refused_by_name(tmp_path: Path) -> None:
    [file] = save_dcp(model(), tmp_path / "in").glob("*.distcp")
    file.unlink()
    with pytest.raises(CheckpointRefused, match=f"{file.name} of in are missing"):
        open_source(tmp_path / "in")


def test_a_cut_ranks_file_is_refused(tmp_path: Path) -> None:
    [file] = save_dcp({"w": torch.ones(1000)}, tmp_path / "in").glob("*.distcp")
    os.truncate(file, 2000)
    with pytest.raises(CheckpointRefused, match="is damaged"):
        read_all(tmp_path / "in")


class Hostile:
    """Unpickled by pickle itself, it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_in_the_metadata_is_run(tmp_path: Path) -> None:
    folder = save_dcp(model(), tmp_path / "in")
    (folder / ".metadata").write_bytes(pickle.dumps(Hostile(tmp_path / "ran")))
    with pytest.raises(CheckpointRefused, match="none of the plain classes"):
        open_source(folder)
    assert not (tmp_path / "ran").exists()


def test_a_file_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    folder = save_dcp({"w": torch.ones(3)}, tmp_path / "in")
    metadata = dcp.FileSystemReader(folder).read_metadata()
    [info] = metadata.storage_data.values()
    (folder / info.relative_path).rename(tmp_path / "out.distcp")
    info.relative_path = "../out.distcp"
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointRefused, match="are missing"):
        open_source(folder)


# -- files -------------------------------------------------------------------------------------


def test_a_class_in_a_file_is_refused_by_name_and_not_made(tmp_path: Path) -> None:
    torch.save({"model": model(), "args": Namespace(lr=1)}, tmp_path / "m.pt")
    with pytest.raises(CheckpointRefused, match=r"argparse\.Namespace.*torch\.save\(model\.state_dict\(\), path\)"):
        open_source(tmp_path / "m.pt")


def test_a_file_of_torchs_older_format_is_read(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.arange(3.0)}}, tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    require_equal(read_all(tmp_path / "m.pt"), {"w": torch.arange(3.0)})


def test_views_of_one_large_storage_are_no_way_to_fill_a_disk(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(1 << 30)}, tmp_path / "m.pt")
    with pytest.raises(CheckpointRefused, match="share so much storage"):
        open_source(tmp_path / "m.pt")


@pytest.mark.parametrize("optimizer", ["optimizer.pt", "optim_000120_rank0.pt"])
def test_the_model_is_found_beside_the_optimizers_file(tmp_path: Path, optimizer: str) -> None:
    torch.save(model(), tmp_path / "model_000120.pt")
    torch.save({"m": torch.ones(3)}, tmp_path / optimizer)
    require_equal(read_all(tmp_path), model())


def _bin_shards(folder: Path, places: dict[str, str]) -> None:
    for file in set(places.values()):
        torch.save({name: tensor for name, tensor in model().items() if places.get(name) == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))


def test_shards_of_torch_save_are_read_by_their_index(tmp_path: Path) -> None:
    _bin_shards(tmp_path, {name: f"pytorch_model-{number % 2}.bin" for number, name in enumerate(model())})
    merged(tmp_path, tmp_path / "out")
    require_equal(tensors_of(tmp_path / "out"), model())


def test_shards_that_are_not_all_there_are_refused(tmp_path: Path) -> None:
    places = dict.fromkeys(model(), "a.safetensors") | {"mask": "b.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    save_file({name: tensor for name, tensor in model().items() if name != "mask"}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointRefused, match=r"names files that are not there: b\.safetensors"):
        open_source(tmp_path)
    save_file({"other": torch.ones(1)}, tmp_path / "b.safetensors")
    with pytest.raises(CheckpointRefused, match="in none of its files: mask"):
        open_source(tmp_path)
    index.unlink()
    (tmp_path / "a.safetensors").rename(tmp_path / "model-00001-of-00003.safetensors")
    (tmp_path / "b.safetensors").rename(tmp_path / "model-00002-of-00003.safetensors")
    with pytest.raises(CheckpointRefused, match="2 of 3 shards are there"):
        open_source(tmp_path)


def test_a_ranks_shard_without_those_before_it_is_refused(tmp_path: Path) -> None:
    save_file(model(), tmp_path / "shard-00001-model-00001-of-00001.safetensors")
    require_equal(read_all(tmp_path), model())
    assert "no index" in open_source(tmp_path).notes[0]
    save_file({"w": torch.ones(1)}, tmp_path / "shard-00003-model-00001-of-00001.safetensors")
    with pytest.raises(CheckpointRefused, match="2 of 3 shards are there"):
        open_source(tmp_path)


def test_a_cut_file_of_safetensors_is_refused(tmp_path: Path) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    os.truncate(tmp_path / "m.safetensors", (tmp_path / "m.safetensors").stat().st_size - 1)
    with pytest.raises(CheckpointRefused, match="cut or damaged"):
        open_source(tmp_path / "m.safetensors")
    os.truncate(tmp_path / "m.safetensors", 20)
    with pytest.raises(CheckpointRefused, match="no valid header"):
        open_source(tmp_path / "m.safetensors")
