"""Text as bytes: any files, by default the Python standard library's own sources."""

import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.data import Dataset

# Tests and vendored wheels are many and repetitive, and differ between distributions.
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
HELD_OUT = 20  # one byte in so many is for validation


class ByteWindows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows side by side: inputs and the bytes that follow them, each (context,)."""

    def __init__(self, text: torch.Tensor, context: int) -> None:
        self._text = text
        self._context = context

    def __len__(self) -> int:
        return max(0, (len(self._text) - 1) // self._context)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self._context
        window = self._text[start : start + self._context + 1].long()
        return window[:-1], window[1:]


def standard_library_files() -> list[Path]:
    """The sources that come with this Python: about 12 MB of real text on every machine."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return sorted(
        path for path in root.rglob("*.py") if not SKIPPED_FOLDERS & set(path.relative_to(root).parts)
    )


def text_files(paths: Sequence[Path]) -> list[Path]:
    """The files given, and all files below the folders given that hold text."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = (file for file in sorted(path.rglob("*")) if file.is_file() and _looks_like_text(file))
            found.extend(inside)
        elif path.is_file():
            found.append(path)
        else:
            raise SystemExit(f"--data {path} does not exist. Give text files, or folders that hold some.")
    return found


def read_text(files: Sequence[Path]) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes (uint8) to train on and those held out: the end of each file, so that both are alike."""
    train, held_out = bytearray(), bytearray()
    for file in files:
        content = file.read_bytes()
        cut = len(content) - len(content) // HELD_OUT
        train += content[:cut]
        held_out += content[cut:]
    return _as_tensor(train), _as_tensor(held_out)


def spread_samples(dataset: ByteWindows, count: int) -> list[int]:
    """At most `count` (0: all) indices, evenly spread over the data set."""
    size = len(dataset)
    if count == 0 or count >= size:
        return list(range(size))
    return [index * size // count for index in range(count)]


def _looks_like_text(path: Path) -> bool:
    """Text has no zero byte near its start; the rule that git and grep use."""
    with path.open("rb") as file:
        return b"\0" not in file.read(8192)


def _as_tensor(content: bytearray) -> torch.Tensor:
    return torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
