"""Checkpoints on disk: written whole or not at all, the best one and the last few kept."""

import os
from pathlib import Path
from typing import Any

import torch


def write_atomically(state: dict[str, Any], path: Path) -> None:
    """Save `state` so that `path` is at every moment absent, the old file whole, or the new file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """A rename survives a power cut only when its folder is on disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, or the latest one of a folder; no code in the file can run."""
    if path.is_dir():
        path = CheckpointFolder(path, keep_last=0).latest()
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no checkpoint at {path}. Give --resume a .pt file or their folder."
        )
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


class CheckpointFolder:
    """`step_00000120.pt` for each checkpoint kept, and `best.pt`."""

    def __init__(self, folder: Path, keep_last: int) -> None:
        self._folder = folder
        self._keep_last = keep_last

    def save_step(self, step: int, state: dict[str, Any]) -> Path:
        """Save, then forget the checkpoints that are no longer among the last K."""
        path = self._folder / f"step_{step:08d}.pt"
        write_atomically(state, path)
        self._forget_old()
        return path

    def save_best(self, state: dict[str, Any]) -> Path:
        """Replace the best checkpoint; a file of its own, because the step's file will be forgotten."""
        path = self._folder / "best.pt"
        write_atomically(state, path)
        return path

    def steps(self) -> list[Path]:
        """The checkpoints in the order of their steps."""
        return sorted(self._folder.glob("step_*.pt"))

    def latest(self) -> Path:
        """The checkpoint with the highest step."""
        paths = self.steps()
        if not paths:
            raise FileNotFoundError(f"There is no step_*.pt in {self._folder}.")
        return paths[-1]

    def _forget_old(self) -> None:
        if self._keep_last > 0:
            for path in self.steps()[: -self._keep_last]:
                path.unlink()
