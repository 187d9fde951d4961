"""The program that converts: within its limits, into a file of its own, and never longer than its starter."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import torch as safetensors_torch

from worker.checkpoints import convert

pytestmark = pytest.mark.real


def started(source: Path, target: Path, *options: str, room: int = 10**9) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "worker.checkpoints.convert", str(source), str(target), *options]
    limits = ["--room", str(room), "--seconds", "60"]
    return subprocess.Popen([*command, *limits], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def answer(source: Path, target: Path, *options: str, room: int = 10**9) -> dict[str, Any]:
    with started(source, target, *options, room=room) as program:
        assert program.stdout is not None
        return dict(json.loads(program.stdout.read()))


@pytest.fixture
def safetensors(tmp_path: Path) -> Path:
    header = json.dumps({"module.w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "7"  # files have no names on the server
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    return path


def test_it_says_what_it_wrote(safetensors: Path, tmp_path: Path) -> None:
    answered = answer(safetensors, tmp_path / "out", "--strip")
    assert answered["notes"] == ["Names lost their prefix module."]
    assert answered["size_bytes"] == (tmp_path / "out").stat().st_size == safetensors.stat().st_size
    assert (tmp_path / "out").read_bytes().endswith(b"1234")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_the_readers_that_people_use_find_the_weights_as_they_were(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).to(torch.bfloat16)
    saved = {f"module.{name}": value for name, value in model.state_dict().items()}
    saved["module.turned"] = torch.arange(12, dtype=torch.float64).reshape(3, 4).t()
    torch.save({"model": saved, "step": 3}, tmp_path / "7")
    answer(tmp_path / "7", tmp_path / "plain", "--strip")
    answer(tmp_path / "7", tmp_path / "tensors", "--strip", "--safetensors")
    plain = torch.load(tmp_path / "plain", weights_only=True)
    tensors = safetensors_torch.load_file(tmp_path / "tensors")
    assert plain["step"] == 3
    assert plain["model"].keys() == tensors.keys() == {name.removeprefix("module.") for name in saved}
    for name, value in saved.items():
        bare = name.removeprefix("module.")
        assert torch.equal(plain["model"][bare], value) and torch.equal(tensors[bare], value), name


def test_nothing_is_written_where_there_is_no_room_or_nothing_to_do(safetensors: Path, tmp_path: Path) -> None:
    size = safetensors.stat().st_size
    assert answer(safetensors, tmp_path / "out", "--strip", room=5) == {"no_room": True, "size_bytes": size}
    assert answer(safetensors, tmp_path / "out", "--safetensors")["unchanged"]
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_there_is_never_written_over(safetensors: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").symlink_to(tmp_path / "mine")
    assert "failed" in answer(safetensors, tmp_path / "out", "--strip")
    assert (tmp_path / "mine").read_text() == "mine"


def test_it_ends_with_its_starter(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "source")  # it waits for somebody who writes, for ever
    with started(tmp_path / "source", tmp_path / "out", "--strip") as program:
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(300) == 1


@pytest.mark.parametrize("safetensors", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"PK\x03\x04",
        b"\x80\x02",
        b"\x80\x02.",
        b"{" * 100,
        bytes(600),
        struct.pack("<Q", 2**40) + b"{" * 1000,
        struct.pack("<Q", 1000) + b"[" * 1000,
        struct.pack("<Q", 100_000) + b'{"a":' * 20_000,
        pickle.dumps({"module.w": 1}, 0),
    ],
)
def test_file_that_is_no_checkpoint_gets_a_sentence(tmp_path: Path, content: bytes, safetensors: bool) -> None:
    """In this process: a program for each would import torch again."""
    (tmp_path / "7").write_bytes(content)
    options = {"strip": not safetensors, "safetensors": safetensors, "room": 10**9}
    answered = convert.answer(Namespace(source=tmp_path / "7", target=tmp_path / "out", **options))
    assert str(answered.get("refused", "")).endswith("."), answered


def test_a_zip_file_without_a_pickle_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "7", "w") as archive:
        archive.writestr("notes.txt", b"x")
    answered = answer(tmp_path / "7", tmp_path / "out", "--strip")
    assert answered["refused"].startswith("It cannot be converted")
