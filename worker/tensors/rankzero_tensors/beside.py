"""The files that belong to a model's weights: configuration, tokenizer, processors."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from .sources import CheckpointRefused

CONFIG = "config.json"
NAMES = (
    CONFIG,
    "generation_config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""As save_pretrained calls them."""
MOST_BYTES = 256 * 1024 * 1024


def files_beside(folders: Sequence[Path]) -> dict[str, Path]:
    """Each of these files' name -> the file, of the first folder that has it."""
    places = [folder / inner for folder in folders for inner in ("", "huggingface")]
    found = {}
    for name in NAMES:
        paths = [place / name for place in places if _is_plain(place / name)]
        if paths:
            found[name] = paths[0]
    return found


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES


def require_config(beside: dict[str, Path]) -> None:
    """Raises CheckpointRefused without a config.json, by which from_pretrained tells the model's class."""
    if CONFIG not in beside:
        raise CheckpointRefused(
            f"from_pretrained needs a {CONFIG} beside the weights, and this checkpoint has none. Let the script save "
            "it there (model.config.save_pretrained(folder)), or merge with --format safetensors, which needs none."
        )


def copy_beside(beside: dict[str, Path], target: Path) -> None:
    """Copy the files. Raises OSError."""
    for name, path in beside.items():
        shutil.copyfile(path, target / name)
