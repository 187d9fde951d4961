"""`python -P -m worker`: the worker as a program."""

from __future__ import annotations

import logging
import os

from worker.agent.program import main

code = main()
logging.shutdown()
os._exit(code)  # threads that still wait for an answer are not waited for
