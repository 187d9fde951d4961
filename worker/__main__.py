"""`python -P -m worker`: `rankzero worker` for the scripts of Slurm jobs, which know an interpreter and no PATH."""

from __future__ import annotations

import os
import sys

os.execv(sys.executable, [sys.executable, "-P", "-m", "cli.main", "worker", *sys.argv[1:]])
