"""Pictures: which are read, which are refused, and how they are augmented."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from image_classifier import augment, load_pictures


def test_digits_come_without_a_download():
    train_set, val_set, _ = load_pictures(None, side=32)
    assert (len(train_set), len(val_set)) == (1437, 360)
    picture, label = train_set[0]
    assert picture.shape == (1, 8, 8) and picture.min() >= -1 and picture.max() <= 1 and 0 <= label < 10
    pictures, labels = zip(*train_set, *val_set, strict=True)
    assert (round(float((torch.stack(pictures) + 1).sum() * 8)), int(sum(labels))) == (561_718, 8070)


def test_reads_cifar10_in_its_binary_version(tmp_path: Path):
    for name, label in [("data_batch_1", 3), ("data_batch_2", 4), ("test_batch", 5)]:
        record = np.full(1 + 3072, 255, dtype=np.uint8)
        record[0] = label
        record[1 : 1 + 1024] = 0  # red comes first
        np.tile(record, 2).tofile(tmp_path / f"{name}.bin")
    train_set, val_set, classes = load_pictures(tmp_path, side=32)
    assert (len(train_set), len(val_set), classes) == (4, 2, 10)
    picture, label = train_set[2]
    assert label == 4 and picture.shape == (3, 32, 32)
    assert picture[0].max() == -1 and picture[1:].min() == 1


def test_refuses_a_damaged_cifar10_file(tmp_path: Path):
    for name in ("data_batch_1", "test_batch"):
        (tmp_path / f"{name}.bin").write_bytes(b"\0" * 3000)
    with pytest.raises(SystemExit, match=r"data_batch_1\.bin is damaged"):
        load_pictures(tmp_path, side=32)


def test_refuses_cifar10s_pickles(tmp_path: Path):
    (tmp_path / "data_batch_1").write_bytes(b"")
    with pytest.raises(SystemExit, match="binary version"):
        load_pictures(tmp_path, side=32)


def test_reads_one_folder_per_class(tmp_path: Path):
    for name, colour in [("dark", 0), ("light", 255)]:
        (tmp_path / name).mkdir()
        for index in range(10):
            Image.new("L", (20 + index, 30), colour).save(tmp_path / name / f"{index}.png")
    train_set, val_set, classes = load_pictures(tmp_path, side=16)
    assert (len(train_set), len(val_set), classes) == (18, 2, 2)
    picture, label = val_set[1]
    assert picture.shape == (3, 16, 16) and picture.min() == 1 and label == 1


def test_takes_a_split_where_the_folder_brings_one(tmp_path: Path):
    for split, count in [("train", 3), ("val", 2)]:
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for index in range(count):
                Image.new("RGB", (8, 8)).save(tmp_path / split / name / f"{index}.jpg")
    train_set, val_set, _ = load_pictures(tmp_path, side=8)
    assert (len(train_set), len(val_set)) == (6, 4)


def test_says_what_to_do_about_a_folder_without_pictures(tmp_path: Path):
    with pytest.raises(SystemExit, match="one folder per class"):
        load_pictures(tmp_path, side=8)


def test_augmenting_shifts_and_mirrors_whole_pictures():
    pictures = torch.arange(64.0).reshape(1, 1, 8, 8).repeat(200, 1, 1, 1)
    shifted = augment(pictures, 1, may_mirror=True)
    assert shifted.shape == pictures.shape and not torch.equal(shifted, pictures)
    inner = shifted[:, 0, 1:-1, 1:-1]
    steps = {int(step) for step in (inner[:, :, 1:] - inner[:, :, :-1]).flatten()}
    assert steps == {1, -1}, "neighbours stay neighbours, in both directions"


def test_digits_are_never_mirrored():
    pictures = torch.arange(64.0).reshape(1, 1, 8, 8).repeat(50, 1, 1, 1)
    inner = augment(pictures, 1, may_mirror=False)[:, 0, 1:-1, 1:-1]
    assert (inner[:, :, 1:] > inner[:, :, :-1]).all()


def test_augmenting_follows_from_the_random_state():
    pictures = torch.randn(4, 3, 8, 8)
    state = torch.get_rng_state()
    first = augment(pictures, 2, may_mirror=True)
    torch.set_rng_state(state)
    assert torch.equal(first, augment(pictures, 2, may_mirror=True))
