"""Text: which files are read, and how their bytes are divided."""

import sysconfig
from pathlib import Path

import pytest
import torch

from language_model import ByteWindows, read_text, spread_samples, standard_library_files, text_files


def test_windows_lie_side_by_side_and_targets_are_the_next_bytes():
    windows = ByteWindows(torch.arange(10, dtype=torch.uint8), context=3)
    assert len(windows) == 3
    inputs, targets = windows[2]
    assert inputs.tolist() == [6, 7, 8] and targets.tolist() == [7, 8, 9]


def test_the_standard_library_is_there_without_its_tests():
    files = standard_library_files()
    assert Path(sysconfig.get_paths()["stdlib"]) / "argparse.py" in files
    assert not any({"test", "site-packages"} & set(file.parts) for file in files)


def test_takes_files_and_folders_of_text_and_leaves_other_files(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.md").write_text("text")
    (tmp_path / "folder" / "b.bin").write_bytes(b"\0\1\2")
    (tmp_path / "c.log").write_text("more")
    assert [file.name for file in text_files([tmp_path / "c.log", tmp_path / "folder"])] == ["c.log", "a.md"]
    with pytest.raises(SystemExit, match="does not exist"):
        text_files([tmp_path / "absent"])


def test_holds_out_the_end_of_each_file(tmp_path: Path):
    for name, letter in [("a", "a"), ("b", "b")]:
        (tmp_path / name).write_text(letter * 40)
    train, held_out = read_text([tmp_path / "a", tmp_path / "b"])
    assert bytes(train.tolist()) == b"a" * 38 + b"b" * 38
    assert bytes(held_out.tolist()) == b"aabb"


def test_spreads_the_samples_validated_on():
    windows = ByteWindows(torch.zeros(101, dtype=torch.uint8), context=10)
    assert spread_samples(windows, 5) == [0, 2, 4, 6, 8]
    assert spread_samples(windows, 0) == list(range(10))
