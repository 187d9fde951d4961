"""The program that rewrites one checkpoint file: without its prefix, as safetensors, or both.

It runs apart from the dashboard, behind everything else and within limits, and prints one line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from worker.checkpoints.keys import is_archive, without_prefix
from worker.checkpoints.layout import Region, SafetensorsFile, read_layout
from worker.checkpoints.pickle_reader import THOROUGH
from worker.checkpoints.pieces import CannotRewrite, Rewriting, write
from worker.checkpoints.safetensors_writer import as_safetensors

MEMORY_BYTES = 3 * 1024**3
"""For names and places alone: tensors pass through in pieces."""
NICENESS = 15


def main() -> None:
    """Started by the dashboard; ends with it, because its standard input does."""
    options = _options()
    threading.Thread(target=_end_with_starter, daemon=True).start()
    _stand_back(options.seconds)
    gc.disable()  # a description has no cycles worth looking for, and millions of parts
    print(json.dumps(answer(options)), flush=True)


def answer(options: argparse.Namespace) -> dict[str, Any]:
    """What was written, or why not."""
    try:
        return _rewritten(options)
    except CannotRewrite as refusal:
        return {"refused": str(refusal)}
    except ValueError as error:
        return {"refused": f"The checkpoint cannot be rewritten: {error}."}
    except (MemoryError, RecursionError):
        return {
            "refused": "The checkpoint cannot be rewritten: to read its names alone takes too much memory."
        }
    except OSError as error:
        return {"failed": f"The checkpoint could not be rewritten: {error.strerror}."}


def rewriting_of(whole: Region, *, strip: bool, safetensors: bool) -> Rewriting:
    """What is to be written. Raises CannotRewrite, ValueError, OSError."""
    if not safetensors:
        return without_prefix(whole)
    if is_archive(whole):
        raise CannotRewrite(
            "A folder cannot become one safetensors file: its weights are files in the archive."
        )
    layout = read_layout(whole, THOROUGH)
    if not isinstance(layout, SafetensorsFile):
        return as_safetensors(layout, strip=strip)
    return without_prefix(whole) if strip else Rewriting([whole], ["It is safetensors as it was saved."])


def _rewritten(options: argparse.Namespace) -> dict[str, Any]:
    with options.source.open("rb") as source:
        rewriting = rewriting_of(
            Region.of(source.fileno()), strip=options.strip, safetensors=options.safetensors
        )
        if rewriting.is_unchanged:
            return {"unchanged": True, "notes": list(rewriting.notes)}
        if rewriting.size_bytes > options.room:
            return {"size_bytes": rewriting.size_bytes, "no_room": True}
        _limit(resource.RLIMIT_FSIZE, rewriting.size_bytes)
        target = os.open(options.target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(target, "rb") as file:
            write(rewriting.pieces, target)
            os.fsync(target)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": sha256, "size_bytes": rewriting.size_bytes, "notes": list(rewriting.notes)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Rewrites one checkpoint file without unpickling it.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--strip", action="store_true", help="take the wrapper's prefix off the names")
    parser.add_argument("--safetensors", action="store_true", help="the state dict alone, as safetensors")
    parser.add_argument("--room", type=int, required=True, help="so many bytes may be written")
    parser.add_argument("--seconds", type=int, required=True, help="so much processor time may be used")
    return parser.parse_args()


def _stand_back(seconds: int) -> None:
    os.nice(NICENESS)
    _limit(resource.RLIMIT_CPU, seconds)
    _limit(resource.RLIMIT_DATA, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(ValueError, OSError):  # a system that does not know it
        resource.setrlimit(kind, (allowed, hard))


def _end_with_starter() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
