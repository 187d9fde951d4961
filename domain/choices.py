"""The words that fields of a spec accept, and the form of an id, without the models that check them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Literal

LrScaling = Literal["none", "linear", "sqrt"]
Precision = Literal["fp32", "bf16", "fp16"]
Strategy = Literal["ddp", "fsdp", "dp", "single"]
Launcher = Literal["torchrun", "python", "launch"]
OnHang = Literal["report", "end", "resume"]
"""The reaction to a hang: report it, end the run, or end the attempt and start the next one."""
OnLostNode = Literal["wait", "end"]
"""wait: keep a run whose other ranks still step; end: end it as soon as the node counts as lost."""
LrOnResize = Literal["keep", "scale"]
"""How the learning rate follows when an attempt has another number of ranks than the run was launched with."""
Pool = Literal["nodes", "slurm"]
"""Where devices come from: our own scheduler, or a Slurm cluster."""
RUN_ID = re.compile(r"[a-z0-9]{10}")
RECIPES = ("image_classifier", "language_model")


class ExportFormat(StrEnum):
    """The kind of file that runs are exported as."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"
    HTML = "html"
    ARCHIVE = "archive"

    @property
    def suffix(self) -> str:
        """The ending of such a file's name."""
        return ".zip" if self is self.ARCHIVE else f".{self}"
