"""Pictures with labels: scikit-learn's digits, CIFAR-10's binary files, or one folder per class."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import Dataset

from batches import Samples

CIFAR_SIDE = 32
CIFAR_CLASSES = 10
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm"}
HELD_OUT = 10  # one picture in so many is for validation where the data set brings no split


@dataclass(frozen=True)
class PictureData:
    """Samples are a picture (channels, side, side), floats from -1 to 1, and its class."""

    train_set: Samples
    val_set: Samples
    channels: int
    classes: int
    # Digits and letters change their meaning in a mirror.
    may_mirror: bool


def load_pictures(path: Path | None, side: int) -> PictureData:
    """Tell by what lies at `path` which kind of data it is; without a path, the digits."""
    if path is None:
        return load_digits()
    if not path.is_dir():
        raise SystemExit(
            f"--data {path} is no folder. Give CIFAR-10's binary files, or one folder per class."
        )
    if (path / "cifar-10-batches-bin").is_dir():
        path = path / "cifar-10-batches-bin"
    if (path / "data_batch_1.bin").is_file():
        return load_cifar10(path)
    if (path / "data_batch_1").is_file() or (path / "cifar-10-batches-py").is_dir():
        raise SystemExit(
            f"{path} holds the Python version of CIFAR-10, whose files can run code when read. "
            "Use the binary version (cifar-10-binary.tar.gz, data_batch_1.bin to data_batch_5.bin)."
        )
    return load_class_folders(path, side)


def load_digits() -> PictureData:
    """1,797 handwritten digits of 8 x 8 grey pixels, every fifth held out."""
    from sklearn.datasets import load_digits as load  # only this data needs scikit-learn

    digits = load()
    pictures = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    held_out = torch.arange(len(labels)) % 5 == 0
    train_set = PicturesInMemory(pictures[~held_out], labels[~held_out])
    return PictureData(
        train_set, PicturesInMemory(pictures[held_out], labels[held_out]), 1, 10, may_mirror=False
    )


class PicturesInMemory(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pictures (count, channels, height, width) and their labels (count,)."""

    def __init__(self, pictures: torch.Tensor, labels: torch.Tensor) -> None:
        self._pictures = pictures
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._pictures[index], self._labels[index]


def load_cifar10(folder: Path) -> PictureData:
    """CIFAR-10's binary version: records of one label byte and 3 x 32 x 32 colour bytes."""
    train = CIFARRecords(sorted(folder.glob("data_batch_*.bin")))
    return PictureData(train, CIFARRecords([folder / "test_batch.bin"]), 3, CIFAR_CLASSES, may_mirror=True)


class CIFARRecords(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The records of some files, kept as bytes and turned into floats one at a time."""

    def __init__(self, files: list[Path]) -> None:
        length = 1 + 3 * CIFAR_SIDE * CIFAR_SIDE
        contents = [np.fromfile(file, dtype=np.uint8) for file in files]
        for file, content in zip(files, contents, strict=True):
            if len(content) % length:
                raise SystemExit(
                    f"{file} is damaged: {len(content)} bytes are no whole number of {length}-byte records."
                )
        self._records = torch.from_numpy(np.concatenate(contents).reshape(-1, length))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        record = self._records[index]
        picture = record[1:].reshape(3, CIFAR_SIDE, CIFAR_SIDE).float() / 127.5 - 1.0
        return picture, record[0].long()


def load_class_folders(folder: Path, side: int) -> PictureData:
    """`folder/CLASS/*.png`, or `folder/train/CLASS/…` with `folder/val/…` (or `test`)."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    train = _list_pictures(root, names)
    held_out = next(
        (folder / name for name in ("val", "test") if root != folder and (folder / name).is_dir()), None
    )
    if held_out is not None:
        val = _list_pictures(held_out, names)
    else:
        val = train[::HELD_OUT]
        train = [picture for index, picture in enumerate(train) if index % HELD_OUT]
    if not train or not val:
        raise SystemExit(
            f"{folder} holds too few pictures. Put them into one folder per class: {folder}/CLASS/1.png"
        )
    return PictureData(PictureFiles(train, side), PictureFiles(val, side), 3, len(names), may_mirror=True)


def _list_pictures(root: Path, names: list[str]) -> list[tuple[Path, int]]:
    return [
        (path, label)
        for label, name in enumerate(names)
        for path in sorted((root / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]


class PictureFiles(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Files read when they are needed, their middle square scaled to `side` x `side` in three colours."""

    def __init__(self, pictures: list[tuple[Path, int]], side: int) -> None:
        self._pictures = pictures
        self._side = side

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        from PIL import Image, ImageOps  # only this data needs Pillow

        path, label = self._pictures[index]
        with Image.open(path) as image:
            square = ImageOps.fit(image.convert("RGB"), (self._side, self._side))
        pixels = torch.from_numpy(np.array(square, dtype=np.uint8)).permute(2, 0, 1)
        return pixels.float() / 127.5 - 1.0, torch.tensor(label)


class Augment:
    """Shift each picture by up to `reach` pixels and, where allowed, mirror every second one.

    Works on whole batches in the training process and draws from torch's global generator, whose state
    is in the checkpoint: a resumed run shifts as the first would have.
    """

    def __init__(self, reach: int, may_mirror: bool) -> None:
        self._reach = reach
        self._may_mirror = may_mirror

    def __call__(self, pictures: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) -> the same shape."""
        count, channels, height, width = pictures.shape
        padded = functional.pad(pictures, [self._reach] * 4, mode="replicate")
        down, right = torch.randint(0, 2 * self._reach + 1, (2, count, 1))
        rows = (down + torch.arange(height))[:, None, :, None]
        columns = (right + torch.arange(width))[:, None, None, :]
        mirrored = torch.rand(count) < (0.5 if self._may_mirror else 0.0)
        columns = torch.where(mirrored[:, None, None, None], columns.flip(-1), columns)
        which = torch.arange(count)[:, None, None, None]
        return padded[which, torch.arange(channels)[None, :, None, None], rows, columns]
