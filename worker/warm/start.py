"""Run by the Python that trains: import torch once, then fork torchrun and its ranks, each run here as `__main__`."""

from __future__ import annotations

EMPTY = {name: value for name, value in globals().items() if name != "annotations"} | {"__doc__": None}
"""The namespace in which Python runs a script, as this version of it fills one in."""

import os  # noqa: E402
import runpy  # noqa: E402
import sys  # noqa: E402

FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing but this may be imported
sys.path.insert(0, FOLDER)

from rankzero_warm import server  # type: ignore[import-not-found, unused-ignore] # noqa: E402
from rankzero_warm.training_program import leave  # type: ignore[import-not-found, unused-ignore] # noqa: E402

sys.path[:] = [entry for entry in sys.path if entry != FOLDER]
program = server.serve(sys.argv[1:])
program.enter(EMPTY)
try:
    if program.is_module:
        runpy._run_module_as_main(program.name)  # type: ignore[attr-defined, unused-ignore]
    else:
        exec(compile(program.source, program.path, "exec", dont_inherit=True), program.namespace)  # nosec B102: the user's own script, which is to run here
except BaseException as error:
    if error.__traceback__ is not None:  # without this frame, as Python itself reports it
        error.__traceback__ = error.__traceback__.tb_next
    if program.is_launcher:
        leave(error)
    raise
if program.is_launcher:
    leave(None)
