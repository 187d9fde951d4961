"""Determine the activity of a thread from another one, and its position in the user's code."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any


def thread_activity(thread: int | None) -> tuple[str, list[list[Any]]]:
    """Return (activity, frames of the user's code as [file, line, function], innermost first)."""
    frame = sys._current_frames().get(thread or 0)
    lines: list[list[Any]] = []
    activities = {"computing"}
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        activities.update(_activities_of(code.co_filename, code.co_name))
        if len(lines) < MAX_LINES and not is_library(code.co_filename):
            lines.append([code.co_filename, frame.f_lineno, code.co_name])
        frame = frame.f_back
    activity = next((activity for activity, _, _ in _IN if activity in activities), "computing")
    return activity, lines


MAX_FRAMES = 200
MAX_LINES = 12
SIGNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "compiling",
        ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/_aot", "/triton/compiler/"),
        r"^_*compile$",
    ),
    (
        "saving",
        ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/safetensors/"),
        r"^_*(?:save|saving)(?:_|$)",
    ),
    (
        "validating",
        ("/evaluation_loop.py",),
        r"^_*(?:validate|validation|evaluate|evaluation|eval|test)(?:_epoch|_loop|_step|_model)?$",
    ),
    ("data", ("/torch/utils/data/",), r"^$"),
    ("waiting", ("/torch/distributed/",), r"^$"),
    ("backward", ("/torch/autograd/",), r"^backward$"),
)
"""(activity, files, functions): a match anywhere on the stack; the first activity wins, because a rank that waits
for another one inside a validation is validating."""
_IN = [(activity, files, re.compile(names)) for activity, files, names in SIGNS]
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<")
_STANDARD = f"{Path(sysconfig.get_path('stdlib')).resolve()}{os.sep}"
_OURS = f"{Path(__file__).resolve().parent}{os.sep}"


def traceback_lines(traceback: Any) -> list[list[Any]]:
    """Return the frames of the user's code in a traceback, innermost first."""
    lines: list[list[Any]] = []
    while traceback is not None and len(lines) < MAX_FRAMES:
        code = traceback.tb_frame.f_code
        if not is_library(code.co_filename):
            lines.append([code.co_filename, traceback.tb_lineno, code.co_name])
        traceback = traceback.tb_next
    return lines[::-1][:MAX_LINES]


def _activities_of(file: str, function: str) -> list[str]:
    """Return the activities a frame stands for; neither imports nor dynamo's frame below compiled calls count."""
    if function == "<module>" or file.endswith("/_dynamo/eval_frame.py"):
        return []
    return [
        activity
        for activity, files, names in _IN
        if any(pattern in file for pattern in files) or names.search(function)
    ]


def is_library(file: str) -> bool:
    """Whether a file is not the user's code: a library's, the standard library's or the probe's."""
    return bool(_LIBRARY.search(file)) or file.startswith((_STANDARD, _OURS))
