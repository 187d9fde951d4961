"""Runs one command on a checkpoint: `python -P -m rankzero_tensors COMMAND ARGS…` prints lines of JSON.

The last is one of {"result": …}, {"refused": sentence} and {"failed": sentence}; the exit code is 0 in each case.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any

from .reports import ProgressReport, print_line
from .sources import CheckpointRefused, Failed

COMMANDS = ("merge", "show", "diff")
"""Modules of this package with `run(arguments, report) -> result`; imported when asked for, as torch takes seconds."""


def main() -> None:
    """Run the command line's command."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # trainings run beside it
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch takes large pages, which cost fewer faults
    command, *arguments = sys.argv[1:] or ["--help"]
    if command not in COMMANDS:
        sys.exit(f"usage: rankzero_tensors {'|'.join(COMMANDS)} ARGS…")
    print_line(answer(command, arguments, ProgressReport()))


def answer(command: str, arguments: list[str], report: ProgressReport) -> dict[str, Any]:
    """Report the result, or why there is none."""
    try:
        module = importlib.import_module(f".{command}", __package__)
        return {"result": module.run(arguments, report)}
    except CheckpointRefused as refusal:
        return {"refused": str(refusal)}
    except ModuleNotFoundError as error:
        return {"refused": f"The Python that trains lacks {error.name}: install it there (pip install {error.name})."}
    except Failed as failure:
        return {"failed": str(failure)}
    except (MemoryError, RecursionError):
        return {"failed": "Reading the checkpoint takes more memory than there is."}
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return {"failed": f"The checkpoint could not be read or written: {error.strerror or error}{where}."}


if __name__ == "__main__":
    main()
