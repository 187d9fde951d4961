"""What DeepSpeed compiles before it trains on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXTENSIONS = Path(sys.prefix) / "torch_extensions"
"""Compiled once for all tests; each takes a copy, because a build that is killed leaves a lock for ever."""


def compiled_extensions() -> Path:
    """The one DeepSpeed compiles on a CPU; put in its place when it is whole."""
    if not EXTENSIONS.exists():
        fresh = EXTENSIONS.with_name(f"{EXTENSIONS.name}.{os.getpid()}")
        env = os.environ | {"TORCH_EXTENSIONS_DIR": str(fresh), "DS_ACCELERATOR": "cpu"}
        build = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder as B; B().load()"
        subprocess.run([sys.executable, "-c", build], env=env, check=True)
        fresh.rename(EXTENSIONS)
    return EXTENSIONS
