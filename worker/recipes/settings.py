"""The flags that both recipes share, as one typed value."""

import argparse
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    """How to train, whatever is trained; see `add_shared_arguments` for the meaning of each."""

    batch_size: int
    lr: float
    warmup_steps: int = 0
    epochs: int = 1
    max_steps: int = 0
    precision: str = "fp32"
    accumulate: int = 1
    strategy: str = "ddp"
    optimizer: str = "adamw"
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    seed: int = 0
    workers: int = 0
    compile: bool = False
    resume: Path | None = None
    output_dir: Path = Path()
    log_every: int = 1
    print_every: int = 10
    val_every: int = 0
    checkpoint_every: int = 0
    keep_last: int = 3

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "Settings":
        """Take the shared flags out of a recipe's parsed command line."""
        return cls(**{field.name: getattr(arguments, field.name) for field in fields(cls)})

    def as_plain_values(self) -> dict[str, Any]:
        """The settings as numbers and strings, for the checkpoint."""
        return {
            name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()
        }


def positive(text: str) -> int:
    """An argparse type: a whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def not_negative(text: str) -> int:
    """An argparse type: a whole number from 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {value}")
    return value


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what does not depend on the recipe; each adds the flags whose defaults are its own."""
    _add_training_arguments(parser)
    _add_process_arguments(parser)
    _add_output_arguments(parser)


def _add_training_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-steps", type=not_negative, default=0, help="stop after this many steps (0: --epochs decides)"
    )
    parser.add_argument(
        "--precision", choices=["fp32", "bf16", "fp16"], default="fp32", help="fp16 scales gradients"
    )
    parser.add_argument(
        "--accumulate", type=positive, default=1, help="batches whose gradients add up to one step"
    )
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw", help="sgd has --momentum")
    parser.add_argument("--momentum", type=float, default=0.9, help="for --optimizer sgd")
    parser.add_argument("--clip-norm", type=float, default=1.0, help="largest gradient norm (0: no clipping)")
    parser.add_argument(
        "--seed", type=int, default=0, help="order, initial weights; rank R draws from seed + R"
    )


def _add_process_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strategy",
        choices=["ddp", "fsdp", "dp", "single"],
        default="ddp",
        help="how the model is spread over processes",
    )
    parser.add_argument("--workers", type=not_negative, default=0, help="data-loader processes per rank")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile the model (needs a C++ compiler on CPUs)"
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resume", type=Path, default=None, metavar="PATH", help="checkpoint, or a folder: its latest"
    )
    parser.add_argument("--output-dir", type=Path, default=Path(), help="gets tensorboard/ and checkpoints/")
    parser.add_argument(
        "--log-every", type=positive, default=1, help="steps between points in the event file"
    )
    parser.add_argument(
        "--print-every", type=not_negative, default=10, help="steps between printed lines (0: none)"
    )
    parser.add_argument(
        "--keep-last", type=not_negative, default=3, help="checkpoints kept beside best.pt (0: all)"
    )
