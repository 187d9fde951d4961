"""A merge: plain names, whole files, a proof, and nothing but a temporary folder before it is done."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed import checkpoint as dcp

from tests.worker.tensors.merging import document_of, merged, metadata_of, model, require_equal, tensors_of
from worker.tensors.rankzero_tensors import merge, proof, writer
from worker.tensors.rankzero_tensors.__main__ import answer
from worker.tensors.rankzero_tensors.reports import ProgressReport
from worker.tensors.rankzero_tensors.sources import CheckpointRefused, Failed

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # DCP without ranks


def wrapped(prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in model().items()}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_of_safetensors_keeps_every_type_and_loses_the_wrappers_names(tmp_path: Path) -> None:
    save_file(wrapped("module._orig_mod."), tmp_path / "weights.safetensors")
    result = merged(tmp_path / "weights.safetensors", tmp_path / "out")
    require_equal(tensors_of(tmp_path / "out"), model())
    assert result["notes"] == ["7 of 7 names lost what wrappers had put into them."]


def test_the_document_says_what_was_read_and_what_was_written(tmp_path: Path) -> None:
    torch.save({"model": wrapped("module."), "step": 3}, tmp_path / "7.pt")
    result = merged(tmp_path / "7.pt", tmp_path / "out")
    [weights] = result["files"]
    path = tmp_path / "out/model.safetensors"
    assert weights == {"name": path.name, "size_bytes": path.stat().st_size, "sha256": sha256(path)}
    assert [source["sha256"] for source in result["sources"]] == [sha256(tmp_path / "7.pt")]
    assert json.loads(metadata_of(path)["sources"]) == {"7.pt": sha256(tmp_path / "7.pt")}
    assert metadata_of(path)["format"] == "pt"
    written = document_of(tmp_path / "out")
    assert len(written.pop("sums")) == result["tensors"] == result["proof"]["sums"]["equal"] == 7
    assert written == result


def test_tied_names_are_written_once(tmp_path: Path) -> None:
    embedding = torch.ones(4, 4)
    state = {"embed.weight": embedding, "copy.weight": embedding.clone(), "head.weight": embedding}
    torch.save({"state_dict": state}, tmp_path / "m.ckpt")
    result = merged(tmp_path / "m.ckpt", tmp_path / "out")
    assert result["tied"] == {"head.weight": "embed.weight"}
    assert sorted(tensors_of(tmp_path / "out")) == ["copy.weight", "embed.weight"]
    assert json.loads(metadata_of(tmp_path / "out/model.safetensors")["tied"]) == result["tied"]


def test_tied_names_of_other_values_are_both_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.ones(2), "b": torch.zeros(2)}, tmp_path / "m.pt")
    opened = merge.open_source

    def as_tied(path: Path):
        source = opened(path)
        source.tied = {"b": "a"}
        return source

    monkeypatch.setattr(merge, "open_source", as_tied)
    result = merged(tmp_path / "m.pt", tmp_path / "out")
    assert sorted(tensors_of(tmp_path / "out")) == ["a", "b"]
    assert "their values differ" in result["notes"][0]


# -- for from_pretrained -----------------------------------------------------------------------


def test_hf_needs_the_models_config(tmp_path: Path) -> None:
    save_file(model(), tmp_path / "model.safetensors")
    with pytest.raises(CheckpointRefused, match=r"needs a config\.json .* merge with --format safetensors"):
        merged(tmp_path, tmp_path / "out", "--format", "hf")
    assert not (tmp_path / "out").exists()


def test_hf_has_config_and_tokenizer_beside_shards_with_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "SHARD_BYTES", 100)
    (tmp_path / "in").mkdir()
    (tmp_path / "beside").mkdir()
    save_file(model(), tmp_path / "in/model.safetensors")
    (tmp_path / "in/config.json").write_text("{}")
    (tmp_path / "beside/tokenizer.json").write_text('{"a": 1}')
    result = merged(tmp_path / "in", tmp_path / "out", "--format", "hf", "--beside", str(tmp_path / "beside"))
    require_equal(tensors_of(tmp_path / "out"), model())
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    names = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert sorted(index["weight_map"]) == sorted(model()) and len(names) > 1
    assert sorted(set(index["weight_map"].values())) == names
    assert index["metadata"]["total_size"] == result["bytes"]
    listed = {file["name"]: file["sha256"] for file in result["files"]}
    assert listed["tokenizer.json"] == sha256(tmp_path / "beside/tokenizer.json")
    assert sorted(listed) == sorted([*names, "config.json", "tokenizer.json", "model.safetensors.index.json"])


def test_a_merged_folder_of_shards_merges_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "SHARD_BYTES", 100)
    (tmp_path / "in").mkdir()
    save_file(model(), tmp_path / "in/model.safetensors")
    (tmp_path / "in/config.json").write_text("{}")
    merged(tmp_path / "in", tmp_path / "shards", "--format", "hf")
    merged(tmp_path / "shards", tmp_path / "out")
    require_equal(tensors_of(tmp_path / "out"), model())


# -- what cannot be written --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"w": torch.zeros(2, dtype=torch.complex128)}, "w is complex128, which safetensors cannot hold"),
        ({"__metadata__": torch.zeros(2)}, "safetensors reserves"),
        ({"w": torch.eye(3).to_sparse()}, "w is not a plain tensor but torch.sparse_coo"),
        ({"a": {"w": torch.zeros(1)}, "b": {"w": torch.ones(1)}}, r"several state dicts \(a, b\)"),
        ({"_orig_mod.w": torch.zeros(1), "w": torch.ones(1)}, "several tensors would be called w"),
        ({"step": 3}, "contains no state dict"),
    ],
)
def test_what_safetensors_cannot_hold_is_refused_by_name(tmp_path: Path, state: object, message: str) -> None:
    torch.save(state, tmp_path / "m.pt")
    with pytest.raises(CheckpointRefused, match=message):
        merged(tmp_path / "m.pt", tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_a_disk_that_is_too_small_is_found_before(tmp_path: Path) -> None:
    torch.save(model(), tmp_path / "m.pt")
    with pytest.raises(Failed, match=r"takes 0\.1 GB, and 0\.0 GB are free"):
        merged(tmp_path / "m.pt", tmp_path / "out", "--room", "1000")
    assert not list(tmp_path.glob("out*"))


def test_another_folder_of_the_name_stays(tmp_path: Path) -> None:
    torch.save(model(), tmp_path / "m.pt")
    (tmp_path / "out").mkdir()
    with pytest.raises(Failed, match="out is there already"):
        merged(tmp_path / "m.pt", tmp_path / "out")


def test_what_a_killed_merge_left_is_replaced(tmp_path: Path) -> None:
    torch.save(model(), tmp_path / "m.pt")
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part/model.safetensors").write_bytes(b"half")
    merged(tmp_path / "m.pt", tmp_path / "out")
    assert not (tmp_path / "out.part").exists()
    require_equal(tensors_of(tmp_path / "out"), model())


# -- the proof ---------------------------------------------------------------------------------


def test_a_byte_that_is_written_wrongly_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"w": torch.ones(1000)}, tmp_path / "m.pt")

    def turned(descriptor: int, data: bytes | memoryview, at: int) -> None:
        write(descriptor, bytes(data)[:-1] + bytes([bytes(data)[-1] ^ 1]) if len(data) == 4000 else data, at)

    write = writer.write_at
    monkeypatch.setattr(writer, "write_at", turned)
    with pytest.raises(Failed, match="w was not written as it was read"):
        merged(tmp_path / "m.pt", tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_a_piece_in_the_wrong_place_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dcp.save({"w": torch.arange(64.0).reshape(8, 8)}, checkpoint_id=tmp_path / "in", no_dist=True)
    opened = merge.open_source

    def shifted(path: Path):
        source = opened(path)
        read = source.read
        source.parts = lambda name: iter([read(name).roll(1, 0)])
        return source

    monkeypatch.setattr(merge, "open_source", shifted)
    with pytest.raises(Failed, match="A part of w differs from the shards"):
        merged(tmp_path / "in", tmp_path / "out")


def test_a_tensor_of_another_shape_than_announced_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.ones(4)}, path)
    with pytest.raises(Failed, match="w has another shape or type"):
        proof.prove(None, {"w": proof.facts_of([2, 2], torch.float32)}, {}, [path], lambda *_: None)


# -- the program -------------------------------------------------------------------------------


def test_the_answer_is_a_result_or_one_sentence(tmp_path: Path) -> None:
    torch.save(model(), tmp_path / "m.pt")
    target = str(tmp_path / "out")
    assert answer("merge", [str(tmp_path / "m.pt"), target], ProgressReport())["result"]["tensors"] == 7
    assert "there already" in answer("merge", [str(tmp_path / "m.pt"), target], ProgressReport())["failed"]
    assert "No such file" in answer("merge", [str(tmp_path / "none.pt"), target], ProgressReport())["failed"]
    (tmp_path / "notes.txt").write_text("nothing")
    assert "of no known format" in answer("merge", [str(tmp_path / "notes.txt"), target], ProgressReport())["refused"]
