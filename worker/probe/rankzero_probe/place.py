"""Where a thread is, seen from another one: what it is doing, and the lines of the user's code."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

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
"""What a process is doing, by a file or a function anywhere on its stack; the first that fits counts, because
a rank that waits for another one inside a validation is validating."""
_IN = [(doing, files, re.compile(names)) for doing, files, names in SIGNS]
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<")
_STANDARD = f"{Path(sysconfig.get_path('stdlib')).resolve()}{os.sep}"
_OURS = f"{Path(__file__).resolve().parent}{os.sep}"


def look_at(thread: int | None) -> tuple[str, list[list[Any]]]:
    """(what it is doing, the user's [file, line, function], innermost first)."""
    frame = sys._current_frames().get(thread or 0)
    lines: list[list[Any]] = []
    found = {"computing"}
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        found.update(_signs(code.co_filename, code.co_name))
        if len(lines) < MAX_LINES and not _is_library(code.co_filename):
            lines.append([code.co_filename, frame.f_lineno, code.co_name])
        frame = frame.f_back
    doing = next((doing for doing, _, _ in _IN if doing in found), "computing")
    return doing, lines


def _signs(file: str, function: str) -> list[str]:
    """torch.compile leaves a frame of dynamo's below each compiled call, which is not compiling; nor is import."""
    if function == "<module>" or file.endswith("/_dynamo/eval_frame.py"):
        return []
    return [
        doing for doing, files, names in _IN if any(part in file for part in files) or names.search(function)
    ]


def _is_library(file: str) -> bool:
    return bool(_LIBRARY.search(file)) or file.startswith((_STANDARD, _OURS))
