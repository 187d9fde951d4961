"""Train a byte-level GPT on text files, by default on the Python standard library's own sources.

    torchrun --nproc-per-node=2 worker/recipes/language_model.py
    torchrun --nproc-per-node=2 worker/recipes/language_model.py --data shakespeare.txt --max-steps 2000
    torchrun --nproc-per-node=8 worker/recipes/language_model.py --layers 12 --heads 12 --width 768 \
        --context 1024 --batch-size 16 --lr 6e-4 --precision bf16 --compile
    torchrun --nproc-per-node=2 worker/recipes/language_model.py --strategy fsdp
    torchrun --nproc-per-node=2 worker/recipes/language_model.py --resume checkpoints/best.pt
    python worker/recipes/language_model.py --strategy single
"""

import argparse
from dataclasses import asdict
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import Subset

from gpt import GPT, GPTShape
from settings import Settings, add_shared_arguments, not_negative, positive
from task import Task
from text_data import ByteWindows, read_text, spread_samples, standard_library_files, text_files
from training_loop import train


@record
def main() -> None:
    """Read the command line and train."""
    arguments = make_parser().parse_args()
    train(Settings.from_arguments(arguments), lambda: build_task(arguments))


def make_parser() -> argparse.ArgumentParser:
    """The flags whose defaults are this recipe's own, then the shared ones."""
    parser = argparse.ArgumentParser(description="Train a byte-level GPT on text files.")
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[], metavar="PATH", help="files or folders of text"
    )
    parser.add_argument("--batch-size", type=positive, default=8, help="windows per rank (per GPU)")
    parser.add_argument("--lr", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--warmup-steps", type=not_negative, default=100, help="steps of linear warm-up")
    parser.add_argument("--weight-decay", type=float, default=0.1, help="of matrices and embeddings")
    parser.add_argument("--epochs", type=positive, default=1, help="passes over the text")
    parser.add_argument(
        "--val-every", type=not_negative, default=100, help="steps between validations (0: each epoch)"
    )
    parser.add_argument("--checkpoint-every", type=not_negative, default=200, help="steps (0: each epoch)")
    parser.add_argument(
        "--val-samples", type=not_negative, default=256, help="windows validated on (0: all held out)"
    )
    parser.add_argument("--layers", type=positive, default=4, help="transformer blocks")
    parser.add_argument("--heads", type=positive, default=4, help="attention heads per block")
    parser.add_argument("--width", type=positive, default=128, help="numbers per byte between the blocks")
    parser.add_argument("--context", type=positive, default=128, help="bytes seen at once")
    parser.add_argument("--dropout", type=float, default=0.0, help="share of activations dropped")
    add_shared_arguments(parser)
    return parser


def build_task(arguments: argparse.Namespace) -> Task:
    """Read the text and make the model."""
    shape = GPTShape(arguments.layers, arguments.heads, arguments.width, arguments.context, arguments.dropout)
    if shape.width % shape.heads:
        raise SystemExit(f"--width {shape.width} does not divide by --heads {shape.heads}.")
    files = text_files(arguments.data) if arguments.data else standard_library_files()
    train_text, held_out = read_text(files)
    val_windows = ByteWindows(held_out, shape.context)
    if len(val_windows) == 0:
        raise SystemExit(
            f"{len(train_text) + len(held_out)} bytes of text in {len(files)} files are too few: at least "
            f"{20 * (shape.context + 1)} are needed with --context {shape.context}."
        )
    model = GPT(shape)
    return Task(
        name="language_model",
        model=model,
        train_set=ByteWindows(train_text, shape.context),
        val_set=Subset(val_windows, spread_samples(val_windows, arguments.val_samples)),
        score="perplexity",
        blocks=list(model.blocks),
        tokens_per_sample=shape.context,
        architecture=asdict(shape),
    )


if __name__ == "__main__":
    main()
