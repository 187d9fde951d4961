"""An event file with something for each of TensorBoard's tabs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter

HOSTILE = "# notes\n<script>document.title = 'broken'</script> <img src=x onerror=\"document.title='broken'\"> **bold**"


def write_events(folder: Path) -> Path:
    """Write it to `runs/a` below the folder; returns the folder."""
    with SummaryWriter(str(folder / "runs" / "a")) as writer:
        for step, loss in enumerate((2.0, 1.0, 0.5)):
            writer.add_scalar("train/loss", loss, step)
            writer.add_histogram("weights", np.linspace(-1, 1, 50), step)
        writer.add_image("digits", np.full((3, 8, 8), 0.5), 0)
        writer.add_text("notes", HOSTILE, 0)
    return folder
