"""How series are named, and which of a run's series is its loss."""

from __future__ import annotations

from collections.abc import Collection

from db.models import Series


def public_name(row: Series) -> str:
    """How people name a series: its tag, with its source or node before it where it is not rank 0's own."""
    return name_of(row.node_rank, row.source, row.tag)


MAIN_LOSS = (
    "train/loss",
    "loss",
    "train_loss",
    "loss/train",
    "Loss/train",
    "training/loss",
    "train/total_loss",
    "total_loss",
    "train/lm_loss",
    "lm_loss",
)
VALIDATION_LOSS = (
    "val/loss",
    "val_loss",
    "eval/loss",
    "eval_loss",
    "validation/loss",
    "validation_loss",
    "valid/loss",
    "valid_loss",
    "test/loss",
    "test_loss",
)
TOTAL_STEPS_TAG, TOTAL_EPOCHS_TAG = "train/total_steps", "train/total_epochs"
EPOCH_TAGS = ("train/epoch", "epoch")
EPOCH_NAMES = (*EPOCH_TAGS, *(f"printed/{tag}" for tag in EPOCH_TAGS))
PROBED_TAGS = ("samples_per_s", "steps_per_s")
THROUGHPUT_TAGS = (
    "train/samples_per_s",
    "samples_per_s",
    "throughput",
    "train/throughput",
    "train/tokens_per_s",
    "train/images_per_s",
    "images_per_s",
    "samples/sec",
    "img/s",
)


def name_of(node_rank: int, source: str, tag: str) -> str:
    """Return the name that people use for a series (`public_name`)."""
    name = tag if source == "events" else f"{source}/{tag}"
    return name if node_rank == 0 else f"node{node_rank}/{name}"


def main_loss(names: Collection[str]) -> str | None:
    """The name that is the training loss; None where there is none."""
    for name in MAIN_LOSS:
        if name in names:
            return name
    return min((n for n in names if n.rsplit("/", 1)[-1].lower().endswith("loss")), default=None)
