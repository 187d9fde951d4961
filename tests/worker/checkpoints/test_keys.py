"""The `module.` prefix is seen and taken off by reading alone; torch loads what comes out."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from worker.checkpoints.keys import prefix_of
from worker.checkpoints.layout import Region
from worker.checkpoints.pickle_reader import BadPickle, describe
from worker.checkpoints.pieces import CannotRewrite, Rewriting, write
from worker.checkpoints.rewrite import rewriting_of

torch = pytest.importorskip("torch")
PREFIX = "module."


def strip_module_prefix(source: Path, target: Path, format: str = "pt", *, strip: bool = True) -> Rewriting:
    """As the program does it, in this process."""
    with source.open("rb") as file, target.open("wb") as copy:
        region = Region.of(file.fileno())
        rewriting = rewriting_of(region, strip=strip, safetensors=format == "safetensors")
        write(rewriting.pieces, copy.fileno())
        assert copy.seek(0, 2) == rewriting.size_bytes
    return rewriting


class Wrapper(torch.nn.Module):
    """As DistributedDataParallel has it: the model is its only child, `module`."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


def plain_model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    first = torch.nn.Linear(3, 3)  # twice there: two names for one storage
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(3), first, torch.nn.Linear(3, 2))


def checkpoint(wrapped: Any) -> dict[str, Any]:
    optimizer = torch.optim.Adam(wrapped.parameters())
    wrapped.module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return {
        "model": wrapped.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 7,
        "note": "module.stays in a text",
        "names": {"module.x": 1},
    }


def safetensors_of(names: list[str]) -> bytes:
    header = {name: {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n, name in enumerate(names)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(range(len(names)))


def read_safetensors(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    types = {"F32": torch.float32, "I64": torch.int64, "BF16": torch.bfloat16}
    found = {}
    for name, about in header.items():
        if name != "__metadata__":
            begins, ends = about["data_offsets"]
            flat = torch.frombuffer(bytearray(body[begins:ends]), dtype=types[about["dtype"]])
            found[name] = flat.reshape(about["shape"])
    return found


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_wrapped_checkpoint_loads_into_the_plain_model(tmp_path: Path, protocol: int) -> None:
    source, target = tmp_path / "step_7.pt", tmp_path / "plain.pt"
    wrapped = Wrapper(plain_model())
    saved = checkpoint(wrapped)
    torch.save(saved, source, pickle_protocol=protocol)
    assert prefix_of(source) == PREFIX
    strip_module_prefix(source, target)
    assert prefix_of(target) is None
    loaded = torch.load(target, weights_only=protocol == 2)  # it reads no other
    fresh = plain_model(seed=1)
    fresh.load_state_dict(loaded["model"], strict=True)
    assert all(
        torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), saved["model"].values(), strict=True)
    )
    assert (loaded["step"], loaded["note"], loaded["names"]) == (7, saved["note"], {"module.x": 1})
    torch.optim.Adam(fresh.parameters()).load_state_dict(loaded["optimizer"])
    assert loaded["model"]._metadata.keys() == plain_model().state_dict()._metadata.keys()


def test_the_copy_can_be_memory_mapped_and_keeps_its_alignment(tmp_path: Path) -> None:
    source, target = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save(Wrapper(plain_model()).state_dict(), source)
    strip_module_prefix(source, target)
    mapped = torch.load(target, weights_only=True, mmap=True)
    assert torch.equal(mapped["0.weight"], plain_model().state_dict()["0.weight"])
    with zipfile.ZipFile(target) as archive:
        for info in archive.infolist():
            header = target.read_bytes()[info.header_offset :]
            name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
            assert (info.header_offset + 30 + name_bytes + extra_bytes) % 64 == 0


def test_a_wrapped_checkpoint_becomes_safetensors_of_the_plain_model(tmp_path: Path) -> None:
    source, target = tmp_path / "step_7.pt", tmp_path / "plain.safetensors"
    saved = checkpoint(Wrapper(plain_model()))
    torch.save(saved, source)
    strip_module_prefix(source, target, "safetensors")
    fresh = plain_model(seed=1)
    found = read_safetensors(target)
    fresh.load_state_dict(found, strict=True)
    assert all(torch.equal(found[name.removeprefix(PREFIX)], value) for name, value in saved["model"].items())
    if find_spec("safetensors") is not None:
        assert import_module("safetensors.torch").load_file(target).keys() == found.keys()


def test_views_parameters_and_small_types_become_safetensors(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    state = {"module.view": base[4:8], "module.scalar": torch.tensor(3), "module.empty": torch.zeros(0, 3)}
    state["module.half"] = torch.ones(2, 2, dtype=torch.bfloat16)
    state["module.parameter"] = torch.nn.Parameter(torch.ones(2))
    torch.save(state, tmp_path / "a.pt")
    strip_module_prefix(tmp_path / "a.pt", tmp_path / "a.safetensors", "safetensors")
    found = read_safetensors_of_some(tmp_path / "a.safetensors")
    assert torch.equal(found["view"], base[4:8]) and found["scalar"].item() == 3
    assert torch.equal(found["half"], state["module.half"]) and found["parameter"].tolist() == [1.0, 1.0]


def read_safetensors_of_some(path: Path) -> dict[str, Any]:
    """Without the empty ones, which torch cannot view in a buffer."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    assert header.pop("empty")["shape"] == [0, 3]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    return read_safetensors(path)


def test_tensors_in_another_order_are_laid_out_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.checkpoints.pieces.CHUNK_BYTES", 64)
    state = {
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "channels_last": torch.rand(4, 3, 5, 5).to(memory_format=torch.channels_last),
        "every_third": torch.arange(30)[::3],
        "view": torch.arange(24.0).reshape(4, 6)[1:3, 2:5],
    }
    torch.save(state, tmp_path / "a.pt")
    strip_module_prefix(tmp_path / "a.pt", tmp_path / "a.safetensors", "safetensors")
    found = read_safetensors(tmp_path / "a.safetensors")
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_a_plain_checkpoint_keeps_its_names(tmp_path: Path) -> None:
    source = tmp_path / "a.pt"
    torch.save(plain_model().state_dict(), source)
    assert prefix_of(source) is None
    strip_module_prefix(source, tmp_path / "b.pt")
    assert torch.load(tmp_path / "b.pt", weights_only=True).keys() == plain_model().state_dict().keys()


@pytest.mark.parametrize(
    ("state", "prefix"),
    [
        ({"module.a": 1, "b": 2}, None),
        ({"module.a": "text"}, None),
        ({}, None),
        ([1, 2], None),
        ({"ema": {"module.w": torch.ones(1)}, "model": {"w": torch.ones(1)}}, PREFIX),
        ({"w": torch.ones(1), "module.w": torch.ones(1)}, None),
        ({"modules.w": torch.ones(1)}, None),
    ],
)
def test_only_names_of_tensors_count(tmp_path: Path, state: object, prefix: str | None) -> None:
    torch.save(state, tmp_path / "a.pt")
    assert prefix_of(tmp_path / "a.pt") == prefix


def test_the_old_format_is_rewritten_too(tmp_path: Path) -> None:
    source, target = tmp_path / "old.pt", tmp_path / "plain.pt"
    saved = checkpoint(Wrapper(plain_model()))
    torch.save(saved, source, _use_new_zipfile_serialization=False)
    assert prefix_of(source) == PREFIX
    strip_module_prefix(source, target)
    plain_model(seed=1).load_state_dict(torch.load(target, weights_only=True)["model"], strict=True)
    strip_module_prefix(source, tmp_path / "plain.safetensors", "safetensors")
    found = read_safetensors(tmp_path / "plain.safetensors")
    assert all(torch.equal(found[name.removeprefix(PREFIX)], value) for name, value in saved["model"].items())


def test_safetensors_lose_the_prefix_too(tmp_path: Path) -> None:
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    source.write_bytes(safetensors_of(["module.a", "module.b"]))
    assert prefix_of(source) == PREFIX
    strip_module_prefix(source, target, "safetensors")
    assert prefix_of(target) is None
    data = target.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    assert list(json.loads(data[8 : 8 + size])) == ["__metadata__", "a", "b"] and size % 8 == 0
    assert data[8 + size :] == b"\x00\x01"


class Bomb:
    """What a hostile checkpoint does when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_nothing_in_a_hostile_checkpoint_is_run(tmp_path: Path) -> None:
    source, trace = tmp_path / "a.pt", tmp_path / "was-here"
    torch.save({"module.w": torch.ones(2), "x": Bomb(trace)}, source)
    assert prefix_of(source) == PREFIX
    strip_module_prefix(source, tmp_path / "b.pt")
    strip_module_prefix(source, tmp_path / "b.safetensors", "safetensors")
    assert not trace.exists()
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "b.pt", weights_only=True)


def test_names_that_look_like_modules_of_classes_are_left_alone(tmp_path: Path) -> None:
    """In protocol 4 a class is named by two texts, and one of them may begin with `module.`."""
    data = b"".join(
        [
            b"\x80\x04}(",
            b"\x8c\x01a",
            b"\x8c\x0bmodule.nets\x8c\x03Net\x93",
            b"\x8c\x08module.w",
            b"ctorch._utils\n_rebuild_tensor_v2\n)R",
            b"u.",
        ]
    )
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", data)
    strip_module_prefix(tmp_path / "a.pt", tmp_path / "b.pt")
    with zipfile.ZipFile(tmp_path / "b.pt") as archive:
        found = archive.read("a/data.pkl")
    assert b"module.nets" in found and b"module.w" not in found


def test_no_cut_or_damage_of_a_checkpoint_does_more_than_none(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(Wrapper(plain_model()).state_dict(), buffer)
    whole, path = buffer.getvalue(), tmp_path / "a.pt"
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        assert prefix_of(path) is None
    for at in range(0, 1200, 7):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        prefix_of(path)
    for name in ("a.safetensors", "b.pt", "c.bin"):
        (tmp_path / name).write_bytes(b"\xff" * 100)
        assert prefix_of(tmp_path / name) is None
        with pytest.raises((CannotRewrite, ValueError)):
            strip_module_prefix(tmp_path / name, tmp_path / "out", "safetensors")
    assert prefix_of(tmp_path / "nothing.pt") is None


@pytest.mark.parametrize("data", [b"", b"u.", b"\x80\x02h\x07.", b"\x80\x02}(K\x01u.", b"R.", b"\x86.", b"}"])
def test_broken_pickles_are_told_from_whole_ones(data: bytes) -> None:
    with pytest.raises(BadPickle):
        describe(data)
