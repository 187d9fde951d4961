"""What rank 0 tells the world: TensorBoard scalars and short printed lines."""

import time
from pathlib import Path
from typing import Any

FLUSH_EVERY_S = 1.0


class EventLog:
    """Event files from rank 0; on the other ranks nothing happens."""

    def __init__(self, folder: Path, is_main: bool, first_step: int) -> None:
        self._writer: Any = None
        self._flushed_at = 0.0
        if is_main:
            # Imported here: it costs a second or more, and only rank 0 needs it.
            from torch.utils.tensorboard import SummaryWriter

            # After a resume in the same folder, steps past the checkpoint come twice: drop the old ones.
            purge_step = first_step + 1 if first_step > 0 else None
            self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Write one value per tag; `step` is the number of optimizer steps done."""
        if self._writer is None:
            return
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)
        # With TensorFlow installed the writer would hold points back for two minutes.
        if time.monotonic() - self._flushed_at > FLUSH_EVERY_S:
            self._writer.flush()
            self._flushed_at = time.monotonic()

    def close(self) -> None:
        """Write what is still held back."""
        if self._writer is not None:
            self._writer.close()


def humanise(value: float) -> str:
    """12432 -> '12.4 k'."""
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.1f}{suffix}"
    return f"{value:.1f}"
