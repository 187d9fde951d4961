"""`python -P -m worker.slurm`: the gateway as a program."""

from __future__ import annotations

import logging
import os

from worker.slurm.program import main

code = main()
logging.shutdown()
os._exit(code)  # do not wait for threads that are still waiting for an answer
