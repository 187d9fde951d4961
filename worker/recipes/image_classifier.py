"""Train a small CNN or a ResNet-18 on pictures, by default on the handwritten digits beside this file.

    torchrun --nproc-per-node=2 worker/recipes/image_classifier.py
    torchrun --nproc-per-node=8 worker/recipes/image_classifier.py --model resnet18 --norm batch \
        --data cifar-10-batches-bin --batch-size 128 --optimizer sgd --lr 0.1 --epochs 100 --precision bf16
    torchrun --nproc-per-node=2 worker/recipes/image_classifier.py --data pictures --image-size 64
    torchrun --nproc-per-node=2 worker/recipes/image_classifier.py --resume checkpoints/best.pt
    python worker/recipes/image_classifier.py --strategy single

The first ends with a validation accuracy of about 0.98 (chance is 0.1) after 440 steps.

BatchNorm (`--norm batch`) sees each rank's own batch: with it, two ranks with batch B do not give exactly
the result of one process with batch 2B. With the default GroupNorm they do.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import Dataset, Subset, TensorDataset

from training import Workload, add_shared_arguments, not_negative, positive, train

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm"}
DIGITS = Path(__file__).with_name("digits.npz")
HELD_OUT = 10  # one picture in so many is for validation where the data set brings no split
RECORD = 1 + 3 * 32 * 32  # bytes of a CIFAR-10 record: the label, then three colours of 32 x 32 pixels
Split = tuple[Dataset[Any], Dataset[Any], int]  # training set, validation set, number of classes


# fmt: off
@record
def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train a small CNN or a ResNet-18 on pictures.")
    parser.add_argument("--data", type=Path, default=None, metavar="PATH",
                        help="CIFAR-10 (binary) or one folder per class")
    parser.add_argument("--model", choices=["cnn", "resnet18"], default="cnn",
                        help="a small CNN, or a ResNet-18 for small pictures")
    parser.add_argument("--norm", choices=["group", "batch"], default="group",
                        help="BatchNorm sees each rank's own batch")
    parser.add_argument("--batch-size", type=positive, default=32, help="pictures per rank (per GPU)")
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--warmup-steps", type=not_negative, default=20, help="steps of linear warm-up")
    parser.add_argument("--weight-decay", type=float, default=0.01, help="of convolutions and matrices")
    parser.add_argument("--epochs", type=positive, default=20, help="passes over the pictures")
    parser.add_argument("--val-every", type=not_negative, default=0, help="steps between validations (0: each epoch)")
    parser.add_argument("--checkpoint-every", type=not_negative, default=0, help="steps (0: each epoch)")
    parser.add_argument("--image-size", type=positive, default=32, help="side in pixels, for one folder per class")
    parser.add_argument("--augment", action=argparse.BooleanOptionalAction, default=True,
                        help="shift and mirror pictures")
    add_shared_arguments(parser)
    train(parser.parse_args(), build_workload)
# fmt: on


def build_workload(args: argparse.Namespace) -> Workload:
    """Load the pictures and make the model."""
    train_set, val_set, classes = load_pictures(args.data, args.image_size)
    is_digits = args.data is None  # grey, 8 pixels wide, and they change their meaning in a mirror
    channels = 1 if is_digits else 3
    model = make_model(args.model, args.norm, channels, classes)
    shift = partial(augment, reach=1 if is_digits else 4, may_mirror=not is_digits)
    return Workload(
        name="image_classifier",
        model=model,
        train_set=train_set,
        val_set=val_set,
        score="accuracy",
        blocks=list(model.stages),
        augment=shift if args.augment else None,
        architecture={"model": args.model, "norm": args.norm, "channels": channels, "classes": classes},
    )


class ConvNet(nn.Module):
    """Stages one after another, the mean over each picture, then one linear layer."""

    def __init__(self, stages: list[nn.Sequential], width: int, classes: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(width, classes)

    def forward(self, pictures: torch.Tensor) -> Any:
        """(batch, channels, height, width) -> logits (batch, classes)."""
        for stage in self.stages:
            pictures = stage(pictures)
        return self.head(pictures.mean((2, 3)))


def make_model(name: str, norm: str, channels: int, classes: int) -> ConvNet:
    """The small CNN, or the ResNet-18 of He et al. 2015 (arXiv 1512.03385) with a 3 x 3 stem and no pooling."""
    if name == "cnn":
        shapes = ((channels, 32, 1), (32, 64, 2), (64, 128, 2))
        stages = [nn.Sequential(*convolution(norm, *shape), nn.ReLU()) for shape in shapes]
        return ConvNet(stages, 128, classes)
    stages = [nn.Sequential(*convolution(norm, channels, 64), nn.ReLU())]
    for inside, outside, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        first = ResidualBlock(norm, inside, outside, stride)
        stages.append(nn.Sequential(first, ResidualBlock(norm, outside, outside, 1)))
    return ConvNet(stages, 512, classes)


class ResidualBlock(nn.Module):
    """Two convolutions added to their input, which is projected when its shape changes."""

    def __init__(self, norm: str, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(norm, inside, outside, stride)
        self.second = convolution(norm, outside, outside)
        same_shape = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if same_shape else convolution(norm, inside, outside, stride, kernel=1)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """(batch, inside, h, w) -> (batch, outside, h / stride, w / stride)."""
        return torch.relu(self.second(torch.relu(self.first(pictures))) + self.shortcut(pictures))


def convolution(norm: str, inside: int, outside: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    """A convolution, then GroupNorm (one picture at a time) or BatchNorm (each rank's own batch)."""
    layer = nn.Conv2d(inside, outside, kernel, stride, padding=kernel // 2, bias=False)
    group = norm == "group"
    return nn.Sequential(layer, nn.GroupNorm(min(8, outside), outside) if group else nn.BatchNorm2d(outside))


def augment(pictures: torch.Tensor, reach: int, may_mirror: bool) -> torch.Tensor:
    """Shift each picture (batch, channels, height, width) by up to `reach` pixels, and mirror every second one.

    Works on whole batches in the training process and draws from torch's global generator, whose state is in
    the checkpoint: a resumed run shifts as the first would have.
    """
    count, channels, height, width = pictures.shape
    down, right = torch.randint(-reach, reach + 1, (2, count, 1))
    rows = (down + torch.arange(height)).clamp(0, height - 1)  # pixels at the border are repeated
    columns = (right + torch.arange(width)).clamp(0, width - 1)
    mirrored = torch.rand(count, 1) < (0.5 if may_mirror else 0.0)
    columns = torch.where(mirrored, columns.flip(-1), columns)
    batch, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return pictures[batch, channel, rows[:, None, :, None], columns[:, None, None, :]]


def load_pictures(path: Path | None, side: int) -> Split:
    """Load the digits, or the kind of data that lies at `path`. Raises SystemExit.

    Samples are a picture (channels, side, side), floats from -1 to 1, and the number of its class.
    """
    if path is None:
        return load_digits()
    if not path.is_dir():
        raise SystemExit(f"--data {path} is not a folder. Give CIFAR-10's binary files, or one folder per class.")
    if (path / "cifar-10-batches-bin").is_dir():
        path = path / "cifar-10-batches-bin"
    if (path / "data_batch_1.bin").is_file():
        train_set = CIFARRecords(sorted(path.glob("data_batch_*.bin")))
        return train_set, CIFARRecords([path / "test_batch.bin"]), 10
    if (path / "data_batch_1").is_file() or (path / "cifar-10-batches-py").is_dir():
        raise SystemExit(
            f"{path} holds the Python version of CIFAR-10, whose files can run code when read. "
            "Use the binary version (cifar-10-binary.tar.gz, data_batch_1.bin to data_batch_5.bin)."
        )
    return load_class_folders(path, side)


def load_digits() -> Split:
    """1,797 handwritten digits of 8 x 8 grey pixels, every fifth held out.

    They are the test set of E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine
    Learning Repository, 1998 (doi.org/10.24432/C50P49), licensed CC BY 4.0: pixels 0 to 16, labels 0 to 9."""
    with np.load(DIGITS) as digits:
        pictures = torch.tensor(digits["images"], dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0
        labels = torch.tensor(digits["labels"], dtype=torch.int64)
    val = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(pictures[~val], labels[~val]), TensorDataset(pictures[val], labels[val]), 10


class CIFARRecords(Dataset[Any]):
    """CIFAR-10's binary records, kept as bytes and turned into floats one at a time."""

    def __init__(self, files: list[Path]) -> None:
        contents = [np.fromfile(file, dtype=np.uint8) for file in files]
        for file, size in zip(files, map(len, contents), strict=True):
            if size % RECORD:
                raise SystemExit(f"{file} is damaged: {size} bytes are not a multiple of {RECORD}.")
        self.records = torch.from_numpy(np.concatenate(contents).reshape(-1, RECORD))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        record = self.records[index]
        return record[1:].reshape(3, 32, 32).float() / 127.5 - 1.0, record[0].long()


class PictureFiles(Dataset[Any]):
    """The files `root/CLASS/*.png` read when they are needed, their middle square scaled to `side` x `side`."""

    def __init__(self, root: Path, classes: list[str], side: int) -> None:
        files = [(file, k) for k, name in enumerate(classes) for file in sorted((root / name).rglob("*"))]
        self.files = [(file, label) for file, label in files if file.suffix.lower() in SUFFIXES]
        self.side = side

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        from PIL import Image, ImageOps  # only this data needs Pillow

        file, label = self.files[index]
        with Image.open(file) as image:
            square = ImageOps.fit(image.convert("RGB"), (self.side, self.side))
        pixels = torch.from_numpy(np.array(square, dtype=np.uint8)).permute(2, 0, 1)
        return pixels.float() / 127.5 - 1.0, torch.tensor(label)


def load_class_folders(folder: Path, side: int) -> Split:
    """`folder/CLASS/*.png`, or `folder/train/CLASS/…` with `folder/val/…` (or `test`). Raises SystemExit."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    pictures = PictureFiles(root, classes, side)
    train_set: Dataset[Any] = pictures
    splits = [folder / name for name in ("val", "test") if root != folder and (folder / name).is_dir()]
    if splits:
        val_set: Dataset[Any] = PictureFiles(splits[0], classes, side)
    else:
        train_set = Subset(pictures, [index for index in range(len(pictures)) if index % HELD_OUT])
        val_set = Subset(pictures, range(0, len(pictures), HELD_OUT))
    if not len(train_set) or not len(val_set):  # type: ignore[arg-type]
        raise SystemExit(f"{folder} holds too few pictures. Put them into one folder per class: {folder}/CLASS/1.png")
    return train_set, val_set, len(classes)


if __name__ == "__main__":
    main()
