"""Train a small CNN or a ResNet-18 on pictures, by default on scikit-learn's bundled handwritten digits.

    torchrun --nproc-per-node=2 worker/recipes/image_classifier.py
    torchrun --nproc-per-node=8 worker/recipes/image_classifier.py --model resnet18 --norm batch \
        --data cifar-10-batches-bin --batch-size 128 --optimizer sgd --lr 0.1 --epochs 100 --precision bf16
    torchrun --nproc-per-node=2 worker/recipes/image_classifier.py --data pictures --image-size 64
    torchrun --nproc-per-node=2 worker/recipes/image_classifier.py --resume checkpoints/best.pt
    python worker/recipes/image_classifier.py --strategy single

BatchNorm (`--norm batch`) sees each rank's own batch: with it, two ranks with batch B do not give exactly
what one process with batch 2B gives. With the default GroupNorm they do.
"""

import argparse
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record

from image_data import Augment, load_pictures
from image_models import make_model
from settings import Settings, add_shared_arguments, not_negative, positive
from task import Task
from training_loop import train


@record
def main() -> None:
    """Read the command line and train."""
    arguments = make_parser().parse_args()
    train(Settings.from_arguments(arguments), lambda: build_task(arguments))


def make_parser() -> argparse.ArgumentParser:
    """The flags whose defaults are this recipe's own, then the shared ones."""
    parser = argparse.ArgumentParser(description="Train a small CNN or a ResNet-18 on pictures.")
    parser.add_argument(
        "--data", type=Path, default=None, metavar="PATH", help="CIFAR-10 (binary) or one folder per class"
    )
    parser.add_argument(
        "--model",
        choices=["cnn", "resnet18"],
        default="cnn",
        help="a small CNN, or a ResNet-18 for small pictures",
    )
    parser.add_argument(
        "--norm", choices=["group", "batch"], default="group", help="BatchNorm sees each rank's own batch"
    )
    parser.add_argument("--batch-size", type=positive, default=32, help="pictures per rank (per GPU)")
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--warmup-steps", type=not_negative, default=20, help="steps of linear warm-up")
    parser.add_argument("--weight-decay", type=float, default=0.01, help="of convolutions and matrices")
    parser.add_argument("--epochs", type=positive, default=20, help="passes over the pictures")
    parser.add_argument(
        "--val-every", type=not_negative, default=0, help="steps between validations (0: each epoch)"
    )
    parser.add_argument("--checkpoint-every", type=not_negative, default=0, help="steps (0: each epoch)")
    parser.add_argument(
        "--image-size", type=positive, default=32, help="side in pixels, for one folder per class"
    )
    parser.add_argument(
        "--augment", action=argparse.BooleanOptionalAction, default=True, help="shift and mirror pictures"
    )
    add_shared_arguments(parser)
    return parser


def build_task(arguments: argparse.Namespace) -> Task:
    """Load the pictures and make the model."""
    data = load_pictures(arguments.data, arguments.image_size)
    model = make_model(arguments.model, arguments.norm, data.channels, data.classes)
    reach = 1 if arguments.data is None else 4  # digits are 8 pixels wide
    return Task(
        name="image_classifier",
        model=model,
        train_set=data.train_set,
        val_set=data.val_set,
        score="accuracy",
        blocks=list(model.stages),
        augment=Augment(reach, data.may_mirror) if arguments.augment else None,
        architecture={
            "model": arguments.model,
            "norm": arguments.norm,
            "channels": data.channels,
            "classes": data.classes,
        },
    )


if __name__ == "__main__":
    main()
