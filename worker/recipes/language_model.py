"""Train a byte-level GPT on text files, by default on the Python standard library's own sources.

    torchrun --nproc-per-node=2 worker/recipes/language_model.py
    torchrun --nproc-per-node=2 worker/recipes/language_model.py --data shakespeare.txt --max-steps 2000
    torchrun --nproc-per-node=8 worker/recipes/language_model.py --layers 12 --heads 12 --width 768 \
        --context 1024 --batch-size 16 --lr 6e-4 --precision bf16 --compile
    torchrun --nproc-per-node=2 worker/recipes/language_model.py --strategy fsdp
    torchrun --nproc-per-node=2 worker/recipes/language_model.py --resume checkpoints/best.pt
    python worker/recipes/language_model.py --strategy single

With `--max-steps 500` the first ends with a validation perplexity of about 8.7 (chance is 256).
"""

import argparse
import math
import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional
from torch.utils.data import Dataset, Subset

from training import Workload, add_shared_arguments, not_negative, positive, train

BYTES = 256  # no tokenizer: each byte is a symbol
HELD_OUT = 20  # one byte in so many is for validation
# Tests and vendored wheels are many and repetitive, and differ between distributions.
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


# fmt: off
@record
def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train a byte-level GPT on text files.")
    parser.add_argument("--data", type=Path, nargs="+", default=[], metavar="PATH", help="files or folders of text")
    parser.add_argument("--batch-size", type=positive, default=8, help="windows per rank (per GPU)")
    parser.add_argument("--lr", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--warmup-steps", type=not_negative, default=100, help="steps of linear warm-up")
    parser.add_argument("--weight-decay", type=float, default=0.1, help="of matrices and embeddings")
    parser.add_argument("--epochs", type=positive, default=1, help="passes over the text")
    parser.add_argument("--val-every", type=not_negative, default=100, help="steps between validations (0: each epoch)")
    parser.add_argument("--checkpoint-every", type=not_negative, default=200, help="steps (0: each epoch)")
    parser.add_argument("--val-samples", type=not_negative, default=256, help="windows validated on (0: all held out)")
    parser.add_argument("--layers", type=positive, default=4, help="transformer blocks")
    parser.add_argument("--heads", type=positive, default=4, help="attention heads per block")
    parser.add_argument("--width", type=positive, default=128, help="numbers per byte between the blocks")
    parser.add_argument("--context", type=positive, default=128, help="bytes seen at once")
    parser.add_argument("--dropout", type=float, default=0.0, help="share of activations dropped")
    add_shared_arguments(parser)
    train(parser.parse_args(), build_workload)
# fmt: on


def build_workload(args: argparse.Namespace) -> Workload:
    """Read the text and make the model. Raises SystemExit when they do not fit."""
    if args.width % args.heads:
        raise SystemExit(f"--width {args.width} does not divide by --heads {args.heads}.")
    files = text_files(args.data) if args.data else standard_library_files()
    train_text, held_out = read_text(files)
    val_windows = ByteWindows(held_out, args.context)
    if len(val_windows) == 0:
        raise SystemExit(
            f"{len(train_text) + len(held_out)} bytes of text in {len(files)} files are too few: at least "
            f"{HELD_OUT * (args.context + 1)} are needed with --context {args.context}."
        )
    architecture = {name: getattr(args, name) for name in ("layers", "heads", "width", "context", "dropout")}
    model = GPT(**architecture)
    return Workload(
        name="language_model",
        model=model,
        train_set=ByteWindows(train_text, args.context),
        val_set=Subset(val_windows, spread_samples(val_windows, args.val_samples)),
        score="perplexity",
        blocks=list(model.blocks),
        tokens_per_sample=args.context,
        architecture=architecture,
    )


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, inputs: torch.Tensor) -> Any:
        """(batch, time, width) -> the same shape."""
        batch, time, width = inputs.shape
        parts = self.query_key_value(inputs).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, width / heads)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.project(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each added to its input."""

    def __init__(self, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(heads, width, dropout)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: torch.Tensor) -> Any:
        """(batch, time, width) -> the same shape."""
        inputs = inputs + self.dropout(self.attention(self.attention_norm(inputs)))
        return inputs + self.dropout(self.mlp(self.mlp_norm(inputs)))


class GPT(nn.Module):
    """Predicts each next byte from up to `context` bytes before it; pre-norm blocks as in GPT-2."""

    def __init__(self, layers: int, heads: int, width: int, context: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.byte_embedding = nn.Embedding(BYTES, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(heads, width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        # Not tied to the embedding: with 256 symbols that would save next to nothing.
        self.head = nn.Linear(width, BYTES, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        # GPT-2 (Radford et al. 2019, section 2.3): the layers added to the residual start smaller.
        for name, parameter in self.named_parameters():
            if name.endswith(("project.weight", "mlp.2.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers))

    def forward(self, symbols: torch.Tensor) -> Any:
        """Bytes as integers (batch, time) -> logits (batch, time, 256)."""
        positions = torch.arange(symbols.shape[1], device=symbols.device)
        hidden = self.byte_embedding(symbols) + self.position_embedding(positions)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class ByteWindows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows side by side: inputs and the bytes that follow them, each (context,)."""

    def __init__(self, text: torch.Tensor, context: int) -> None:
        self.text, self.context = text, context

    def __len__(self) -> int:
        return max(0, (len(self.text) - 1) // self.context)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.context
        window = self.text[start : start + self.context + 1].long()
        return window[:-1], window[1:]


def spread_samples(dataset: ByteWindows, count: int) -> list[int]:
    """At most `count` (0: all) indices, evenly spread over the data set."""
    size = len(dataset)
    count = min(count or size, size)
    return [index * size // count for index in range(count)]


def standard_library_files() -> list[Path]:
    """The sources that come with this Python: about 12 MB of real text on every machine."""
    files: list[Path] = []
    for folder, folders, names in os.walk(sysconfig.get_paths()["stdlib"]):
        folders[:] = set(folders) - SKIPPED_FOLDERS
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(files)


def text_files(paths: Sequence[Path]) -> list[Path]:
    """The files given, and all files below the folders given that hold text. Raises SystemExit."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise SystemExit(f"--data {path} does not exist. Give text files, or folders that hold some.")
        below = [file for file in sorted(path.rglob("*")) if file.is_file() and looks_like_text(file)]
        files += below if path.is_dir() else [path]
    return files


def looks_like_text(path: Path) -> bool:
    """Text has no zero byte near its start; the rule that git and grep use."""
    with path.open("rb") as file:
        return b"\0" not in file.read(8192)


def read_text(files: Sequence[Path]) -> tuple[torch.Tensor, ...]:
    """The bytes (uint8) to train on and those held out: the end of each file, so that both are alike."""
    train_text, held_out = bytearray(), bytearray()
    for file in files:
        content = file.read_bytes()
        cut = len(content) - len(content) // HELD_OUT
        train_text += content[:cut]
        held_out += content[cut:]
    return tuple(torch.from_numpy(np.frombuffer(text, np.uint8)) for text in (train_text, held_out))


if __name__ == "__main__":
    main()
