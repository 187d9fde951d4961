"""The `module.` prefix is recognised and removed, the weights become safetensors; torch loads the copies."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from worker.checkpoints.conversion import CannotConvert, PlannedConversion
from worker.checkpoints.convert import conversion_of
from worker.checkpoints.names import prefix_of

PREFIX = "module."


def strip_module_prefix(source: Path, target: Path, format: str = "pt", *, strip: bool = True) -> list[str]:
    """Notes of a conversion in this process; an unchanged file is copied."""
    conversion = conversion_of(source, strip=strip, safetensors=format == "safetensors")
    if not isinstance(conversion, PlannedConversion):
        target.write_bytes(source.read_bytes())
        return [conversion]
    notes = conversion.write(target)
    assert target.stat().st_size <= conversion.size_bytes + 16384  # what the records of a zip file take
    return list(notes)


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


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 3")
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_wrapped_checkpoint_loads_into_the_plain_model(tmp_path: Path, protocol: int) -> None:
    source, target = tmp_path / "step_7.pt", tmp_path / "plain.pt"
    wrapped = Wrapper(plain_model())
    saved = checkpoint(wrapped)
    torch.save(saved, source, pickle_protocol=protocol)
    assert prefix_of(source) == PREFIX
    strip_module_prefix(source, target)
    assert prefix_of(target) is None
    loaded = torch.load(target, weights_only=True)
    fresh = plain_model(seed=1)
    fresh.load_state_dict(loaded["model"], strict=True)
    assert all(torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), saved["model"].values(), strict=True))
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
    tensors = load_file(target)
    fresh.load_state_dict(tensors, strict=True)
    assert all(torch.equal(tensors[name.removeprefix(PREFIX)], value) for name, value in saved["model"].items())


def test_views_parameters_and_small_types_become_safetensors(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    state = {"module.view": base[4:8], "module.scalar": torch.tensor(3), "module.empty": torch.zeros(0, 3)}
    state["module.half"] = torch.ones(2, 2, dtype=torch.bfloat16)
    state["module.parameter"] = torch.nn.Parameter(torch.ones(2))
    torch.save(state, tmp_path / "a.pt")
    strip_module_prefix(tmp_path / "a.pt", tmp_path / "a.safetensors", "safetensors")
    tensors = load_file(tmp_path / "a.safetensors")
    assert torch.equal(tensors["view"], base[4:8]) and tensors["scalar"].item() == 3
    assert tensors["empty"].shape == (0, 3)
    assert torch.equal(tensors["half"], state["module.half"]) and tensors["parameter"].tolist() == [1.0, 1.0]


def test_tensors_in_another_order_are_laid_out_anew(tmp_path: Path) -> None:
    state = {
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "channels_last": torch.rand(4, 3, 5, 5).to(memory_format=torch.channels_last),
        "every_third": torch.arange(30)[::3],
        "view": torch.arange(24.0).reshape(4, 6)[1:3, 2:5],
    }
    torch.save(state, tmp_path / "a.pt")
    strip_module_prefix(tmp_path / "a.pt", tmp_path / "a.safetensors", "safetensors")
    tensors = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(tensors[name], value) for name, value in state.items())


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


def test_the_old_format_is_converted_too(tmp_path: Path) -> None:
    source, target = tmp_path / "old.pt", tmp_path / "plain.pt"
    saved = checkpoint(Wrapper(plain_model()))
    torch.save(saved, source, _use_new_zipfile_serialization=False)
    assert prefix_of(source) == PREFIX
    strip_module_prefix(source, target)
    plain_model(seed=1).load_state_dict(torch.load(target, weights_only=True)["model"], strict=True)
    strip_module_prefix(source, tmp_path / "plain.safetensors", "safetensors")
    tensors = load_file(tmp_path / "plain.safetensors")
    assert all(torch.equal(tensors[name.removeprefix(PREFIX)], value) for name, value in saved["model"].items())


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
    """Calls a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize(
    ("saved", "sentence"),
    [
        ([1, 2], "It does not contain a dictionary"),
        ({"note": "x"}, "It contains no state dict"),
        (
            {"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(1)}},
            r"It contains several state dicts \(a, b\), and none is called model",
        ),
        ({"s": torch.ones(2, 2).to_sparse(), "w": torch.ones(1)}, "s is not a plain tensor"),
        ({"c": torch.ones(1, dtype=torch.complex128)}, "c has a data type that safetensors does not support"),
        ({"__metadata__": torch.ones(1)}, "__metadata__ is a name that safetensors reserves"),
    ],
)
def test_unconvertible_checkpoint_gets_a_sentence(tmp_path: Path, saved: Any, sentence: str) -> None:
    torch.save(saved, tmp_path / "a.pt")
    with pytest.raises(CannotConvert, match=sentence):
        conversion_of(tmp_path / "a.pt", strip=False, safetensors=True)


@pytest.mark.parametrize("safetensors", [False, True])
@pytest.mark.parametrize("function", [os.system, shutil.copyfile])
def test_a_hostile_checkpoint_is_refused_and_nothing_in_it_is_run(
    tmp_path: Path, function: Any, safetensors: bool
) -> None:
    source, trace = tmp_path / "a.pt", tmp_path / "was-here"
    arguments = [f"touch {trace}"] if function is os.system else [str(source), str(trace)]
    torch.save({"module.w": torch.ones(2), "x": Bomb(function, *arguments)}, source)
    assert prefix_of(source) == PREFIX
    with pytest.raises(CannotConvert, match=rf"plain values \({function.__module__}\.{function.__name__}\); download"):
        conversion_of(source, strip=True, safetensors=safetensors)
    assert not trace.exists()


class OwnTensor(torch.Tensor):
    """A tensor of a class of its own."""


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("value", [argparse.Namespace(lr=0.1), torch.ones(2).as_subclass(OwnTensor)])
def test_objects_of_other_classes_are_refused_by_name(tmp_path: Path, value: Any, legacy: bool) -> None:
    saved = {"model": {"module.w": torch.ones(2)}, "other": value}
    torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    assert prefix_of(tmp_path / "a.pt") == PREFIX
    with pytest.raises(CannotConvert, match="holds more than tensors and plain values") as refusal:
        conversion_of(tmp_path / "a.pt", strip=True, safetensors=False)
    assert (type(value).__name__ in str(refusal.value)) is not legacy


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [4, 5])
def test_a_newer_pickle_protocol_is_refused(tmp_path: Path, protocol: int, legacy: bool) -> None:
    options = {"pickle_protocol": protocol, "_use_new_zipfile_serialization": not legacy}
    torch.save({"module.w": torch.ones(2)}, tmp_path / "a.pt", **options)
    assert prefix_of(tmp_path / "a.pt") == PREFIX
    with pytest.raises(CannotConvert, match="torch's weights-only loader does not read it"):
        conversion_of(tmp_path / "a.pt", strip=True, safetensors=False)


def test_an_older_torch_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"module.w": torch.ones(2)}, tmp_path / "a.pt")
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.5.1"))
    with pytest.raises(CannotConvert, match=r"has torch 2\.5\.1, and .* by torch 2\.6 or newer: upgrade it"):
        conversion_of(tmp_path / "a.pt", strip=True, safetensors=False)


def test_the_original_is_never_changed(tmp_path: Path) -> None:
    source = tmp_path / "a.pt"
    torch.save(checkpoint(Wrapper(plain_model())), source)
    before = source.read_bytes()
    strip_module_prefix(source, tmp_path / "b.pt")
    strip_module_prefix(source, tmp_path / "b.safetensors", "safetensors")
    assert source.read_bytes() == before


def test_one_storage_under_very_many_names_does_not_fill_the_disk(tmp_path: Path) -> None:
    storage = torch.ones(250_000)
    torch.save({f"w{number}": storage for number in range(40)}, tmp_path / "a.pt")
    with pytest.raises(CannotConvert, match="more than twice as large"):
        conversion_of(tmp_path / "a.pt", strip=False, safetensors=True)
    torch.save({"a": storage, "b": storage}, tmp_path / "a.pt")
    notes = strip_module_prefix(tmp_path / "a.pt", tmp_path / "b", "safetensors")
    assert notes[-1] == "These share one storage and are written separately: a, b."


def test_no_cut_or_damage_of_a_checkpoint_does_more_than_none(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(Wrapper(plain_model()).state_dict(), buffer)
    whole, path = buffer.getvalue(), tmp_path / "a.pt"
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        assert prefix_of(path) in (None, PREFIX)
    for at in range(0, 1200, 7):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        prefix_of(path)
    for name in ("a.safetensors", "b.pt", "c.bin"):
        (tmp_path / name).write_bytes(b"\xff" * 100)
        assert prefix_of(tmp_path / name) is None
        with pytest.raises(CannotConvert):
            strip_module_prefix(tmp_path / name, tmp_path / "out", "safetensors")
    assert prefix_of(tmp_path / "nothing.pt") is None
