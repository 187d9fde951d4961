"""Checkpoints on disk and random states inside them."""

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import snapshot
import torch
from learning_rate import WarmupCosine, learning_rate_at
from random_state import capture_random_state, restore_random_state, seed_everything
from snapshot import CheckpointFolder, read_checkpoint, write_atomically


def test_keeps_the_last_k_and_the_best(tmp_path: Path):
    folder = CheckpointFolder(tmp_path, keep_last=2)
    folder.save_best({"step": 5})
    for step in (5, 10, 15, 100000):
        folder.save_step(step, {"step": step})
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "best.pt",
        "step_00000015.pt",
        "step_00100000.pt",
    ]
    assert read_checkpoint(tmp_path) == {"step": 100000}
    assert read_checkpoint(tmp_path / "best.pt") == {"step": 5}


def test_keeps_all_when_told_so(tmp_path: Path):
    folder = CheckpointFolder(tmp_path, keep_last=0)
    for step in range(5):
        folder.save_step(step, {})
    assert len(folder.steps()) == 5


def test_a_save_cut_short_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "best.pt"
    write_atomically({"step": 1}, path)

    def save_half(state, file):
        file.write(b"PK half a file")
        raise OSError("No space left on device")

    monkeypatch.setattr(snapshot.torch, "save", save_half)
    with pytest.raises(OSError, match="No space left"):
        write_atomically({"step": 2}, path)
    assert read_checkpoint(path) == {"step": 1}
    assert list(tmp_path.glob("*.pt")) == [path]


def test_a_file_appears_under_its_name_only_after_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "step_00000001.pt"
    seen = []
    monkeypatch.setattr(snapshot.os, "fsync", lambda descriptor: seen.append(path.exists()))
    write_atomically({"step": 1}, path)
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
    write_atomically(capture_random_state(), tmp_path / "state.pt")
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


def test_the_rate_warms_up_linearly_then_falls_as_a_cosine():
    rates = [learning_rate_at(step, 1.0, warmup_steps=4, total_steps=104) for step in range(105)]
    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert rates[54] == pytest.approx(0.55), "half way down, to a tenth"
    assert rates[104] == pytest.approx(0.1)
    assert all(later <= earlier for earlier, later in pairwise(rates[4:]))


def test_the_rate_needs_no_warm_up():
    assert learning_rate_at(0, 2.0, warmup_steps=0, total_steps=10) == 2.0


def test_a_schedule_goes_on_where_it_was_saved_but_with_todays_flags():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.0)
    saved = WarmupCosine(optimizer, peak=1.0, warmup_steps=0, total_steps=10)
    for _ in range(3):
        saved.apply()
    resumed = WarmupCosine(optimizer, peak=2.0, warmup_steps=0, total_steps=10)
    resumed.load_state_dict(saved.state_dict())
    assert resumed.apply() == optimizer.param_groups[0]["lr"] == pytest.approx(2 * saved.apply())
