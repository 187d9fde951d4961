"""`python -P -m worker.slurm`: the gateway as a program."""

from __future__ import annotations

import logging
import os

from worker.slurm.program import main

code = main()
logging.shutdown()
os._exit(code)  # threads that still wait for an answer are not waited for
