"""Checkpoints on disk and random states inside them."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import checkpoints
from checkpoints import (
    capture_random_state,
    read_checkpoint,
    restore_random_state,
    save_checkpoint,
    seed_everything,
)


def test_keeps_the_last_k_and_the_best(tmp_path: Path):
    save_checkpoint({"step": 5}, tmp_path, keep_last=2, is_best=True)
    for step in (5, 10, 15, 100000):
        save_checkpoint({"step": step}, tmp_path, keep_last=2)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "best.pt",
        "step_00000015.pt",
        "step_00100000.pt",
    ]
    assert read_checkpoint(tmp_path) == {"step": 100000}
    assert read_checkpoint(tmp_path / "best.pt") == {"step": 5}


def test_keeps_all_when_told_so(tmp_path: Path):
    for step in range(5):
        save_checkpoint({"step": step}, tmp_path, keep_last=0)
    assert len(list(tmp_path.glob("step_*.pt"))) == 5


def test_a_save_cut_short_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = save_checkpoint({"step": 1}, tmp_path, keep_last=0, is_best=True)
    assert path == tmp_path / "best.pt"

    def save_half(state, file):
        file.write(b"PK half a file")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoints.torch, "save", save_half)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint({"step": 2}, tmp_path, keep_last=0, is_best=True)
    assert read_checkpoint(path) == {"step": 1}
    assert list(tmp_path.glob("*.pt")) == [path]


def test_a_file_appears_under_its_name_only_after_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "step_00000001.pt"
    seen = []
    monkeypatch.setattr(checkpoints.os, "fsync", lambda descriptor: seen.append(path.exists()))
    save_checkpoint({"step": 1}, tmp_path, keep_last=0)
    assert seen == [False, True], "the file's own sync, then its folder's after the rename"


def test_says_which_checkpoint_is_missing(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        read_checkpoint(tmp_path / "step_00000001.pt")
    with pytest.raises(FileNotFoundError, match="no step_"):
        read_checkpoint(tmp_path)


def test_random_states_survive_a_file_read_with_weights_only(tmp_path: Path):
    seed_everything(11)
    random.gauss(0, 1)  # leaves a second value behind, which is part of the state
    np.random.standard_normal()
    torch.save(capture_random_state(), tmp_path / "state.pt")
    expected = draw()
    seed_everything(12)
    assert draw() != expected
    restore_random_state(read_checkpoint(tmp_path / "state.pt"))
    assert draw() == expected


def draw() -> list[float]:
    return [
        random.gauss(0, 1),
        random.random(),
        np.random.standard_normal(),
        np.random.rand(),
        torch.rand(()).item(),
    ]
