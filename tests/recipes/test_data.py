"""Pictures and text: what is read, what is refused, and who sees which sample."""

import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from batches import TrainingOrder, ValidationShare
from image_data import Augment, PicturesInMemory, load_pictures
from parallel import Parallel
from PIL import Image
from text_data import ByteWindows, read_text, spread_samples, standard_library_files, text_files


def test_digits_come_without_a_download():
    data = load_pictures(None, side=32)
    assert (len(data.train_set), len(data.val_set)) == (1437, 360)
    picture, label = data.train_set[0]
    assert picture.shape == (1, 8, 8) and picture.min() >= -1 and picture.max() <= 1 and 0 <= label < 10


def test_reads_cifar10_in_its_binary_version(tmp_path: Path):
    for name, label in [("data_batch_1", 3), ("data_batch_2", 4), ("test_batch", 5)]:
        record = np.full(1 + 3072, 255, dtype=np.uint8)
        record[0] = label
        record[1 : 1 + 1024] = 0  # red comes first
        np.tile(record, 2).tofile(tmp_path / f"{name}.bin")
    data = load_pictures(tmp_path, side=32)
    assert (len(data.train_set), len(data.val_set), data.classes) == (4, 2, 10)
    picture, label = data.train_set[2]
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
    data = load_pictures(tmp_path, side=16)
    assert (len(data.train_set), len(data.val_set), data.classes) == (18, 2, 2)
    picture, label = data.val_set[1]
    assert picture.shape == (3, 16, 16) and picture.min() == 1 and label == 1


def test_takes_a_split_where_the_folder_brings_one(tmp_path: Path):
    for split, count in [("train", 3), ("val", 2)]:
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for index in range(count):
                Image.new("RGB", (8, 8)).save(tmp_path / split / name / f"{index}.jpg")
    data = load_pictures(tmp_path, side=8)
    assert (len(data.train_set), len(data.val_set)) == (6, 4)


def test_says_what_to_do_about_a_folder_without_pictures(tmp_path: Path):
    with pytest.raises(SystemExit, match="one folder per class"):
        load_pictures(tmp_path, side=8)


def test_augmenting_shifts_and_mirrors_whole_pictures():
    pictures = torch.arange(64.0).reshape(1, 1, 8, 8).repeat(200, 1, 1, 1)
    shifted = Augment(1, may_mirror=True)(pictures)
    assert shifted.shape == pictures.shape and not torch.equal(shifted, pictures)
    inner = shifted[:, 0, 1:-1, 1:-1]
    steps = {int(step) for step in (inner[:, :, 1:] - inner[:, :, :-1]).flatten()}
    assert steps == {1, -1}, "neighbours stay neighbours, in both directions"


def test_digits_are_never_mirrored():
    pictures = torch.arange(64.0).reshape(1, 1, 8, 8).repeat(50, 1, 1, 1)
    inner = Augment(1, may_mirror=False)(pictures)[:, 0, 1:-1, 1:-1]
    assert (inner[:, :, 1:] > inner[:, :, :-1]).all()


def test_augmenting_follows_from_the_random_state():
    pictures = torch.randn(4, 3, 8, 8)
    state = torch.get_rng_state()
    first = Augment(2, may_mirror=True)(pictures)
    torch.set_rng_state(state)
    assert torch.equal(first, Augment(2, may_mirror=True)(pictures))


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


def make_order(rank: int, world_size: int, size: int = 23) -> TrainingOrder:
    data = PicturesInMemory(torch.zeros(size, 1), torch.zeros(size))
    return TrainingOrder(data, Parallel("ddp", rank, world_size), seed=5)


def test_ranks_share_out_one_order():
    one = list(make_order(0, 1))
    two = [list(make_order(rank, 2)) for rank in (0, 1)]
    assert [sample for pair in zip(*two, strict=True) for sample in pair] == one[:22]


def test_epochs_differ_and_an_order_can_begin_in_the_middle():
    order = make_order(0, 2)
    order.begin(epoch=0, first=0)
    first = list(order)
    order.begin(epoch=1, first=0)
    second = list(order)
    assert first != second and len(order) == 11
    order.begin(epoch=1, first=4)
    assert list(order) == second[4:] and len(order) == 7


@pytest.mark.parametrize(("size", "world_size"), [(1, 2), (7, 2), (8, 4), (10, 4), (3, 4)])
def test_validation_shares_cover_each_sample_once_in_equally_many_batches(size: int, world_size: int):
    shares = [ValidationShare(size, Parallel("ddp", rank, world_size)) for rank in range(world_size)]
    assert len({len(list(share)) for share in shares}) == 1
    counted = [sample for share in shares for sample in list(share)[: share.real_count]]
    assert sorted(counted) == list(range(size))
