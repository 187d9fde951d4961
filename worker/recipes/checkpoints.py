"""Checkpoints that are complete or absent, and their random states: a run continues bit for bit."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch


def save_checkpoint(state: dict[str, Any], folder: Path, keep_last: int, is_best: bool = False) -> Path:
    """Save as `best.pt`, or as `step_00000120.pt` and delete all of these but the last `keep_last` (0: none).

    The path is always absent, the complete old file, or the complete new file. The best checkpoint is a
    file of its own, because the file of its step will be deleted.
    """
    path = folder / ("best.pt" if is_best else f"step_{state['step']:08d}.pt")
    temporary = path.with_name(f".{path.name}.tmp")
    folder.mkdir(parents=True, exist_ok=True)
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)  # a rename survives a power cut only when its folder is on disk too
    os.close(descriptor)
    for old in sorted(folder.glob("step_*.pt"))[:-keep_last] if keep_last else []:
        old.unlink()
    return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, or the latest one of a folder; no code in the file can run.

    Raises FileNotFoundError.
    """
    if path.is_dir():
        steps = sorted(path.glob("step_*.pt"))
        if not steps:
            raise FileNotFoundError(f"There is no step_*.pt in {path}.")
        path = steps[-1]
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint at {path}. Give --resume a .pt file or their folder.")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture_random_state() -> dict[str, Any]:
    """Every random state of this process, as tensors and plain numbers that `weights_only=True` reads."""
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached_gauss = np.random.get_state(legacy=True)
    numpy: dict[str, Any] = {
        "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "position": position,
    }
    numpy |= {"has_gauss": has_gauss, "cached_gauss": cached_gauss}
    python = {"version": version, "words": torch.tensor(words), "gauss": gauss}
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": python, "numpy": numpy}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Continue each generator where `capture_random_state` read it."""
    torch.set_rng_state(state["torch"])
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, numpy["position"], numpy["has_gauss"], numpy["cached_gauss"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
