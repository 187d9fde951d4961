"""Answers each line on standard input, the size of a round, with the seconds it took, on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable


def serve(act: Callable[[int], float]) -> None:
    """Act until standard input ends; what the act prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(act(int(line))) + "\n")
        answers.flush()
