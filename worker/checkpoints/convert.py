"""The program that converts one checkpoint file: without its prefix, as safetensors, or both.

The dashboard starts it with limits and a low priority; it prints one line of JSON.
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
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from worker.checkpoints.conversion import CannotConvert, PlannedConversion, with_shorter_header
from worker.checkpoints.names import is_archive, read_header

MEMORY_BYTES = 3 * 1024**3
"""Memory for torch and the names; tensors are mapped from the file, which does not count."""
NICENESS = 10


def main() -> None:
    """Convert the file; ends with the dashboard, because its standard input does."""
    options = _options()
    threading.Thread(target=_end_with_starter, daemon=True).start()
    _stand_back(options.seconds)
    gc.disable()  # a checkpoint has no cycles worth looking for, and perhaps millions of parts
    warnings.simplefilter("ignore")
    print(json.dumps(answer(options)), flush=True)


def answer(options: argparse.Namespace) -> dict[str, Any]:
    """Report what was written, or why nothing was."""
    try:
        return _converted(options)
    except CannotConvert as refusal:
        return {"refused": str(refusal)}
    except (MemoryError, RecursionError):
        return {"refused": "The checkpoint cannot be converted: reading it needs too much memory."}
    except ModuleNotFoundError as error:
        return {"refused": f"The dashboard's Python lacks {error.name}: `pip install 'rankzero[torch]'` brings it."}
    except OSError as error:
        return {"failed": f"The checkpoint could not be converted: {error.strerror or error}."}


def _converted(options: argparse.Namespace) -> dict[str, Any]:
    conversion = conversion_of(options.source, strip=options.strip, safetensors=options.safetensors)
    if isinstance(conversion, str):
        return {"unchanged": True, "notes": [conversion]}
    if conversion.size_bytes > options.room:
        return {"size_bytes": conversion.size_bytes, "no_room": True}
    _limit(resource.RLIMIT_FSIZE, options.room)
    os.close(os.open(options.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    notes = _write(conversion, options.target)
    with options.target.open("rb") as file:  # perhaps another one: safetensors renames
        os.fsync(file.fileno())
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": sha256, "size_bytes": os.fstat(file.fileno()).st_size, "notes": list(notes)}


def _write(conversion: PlannedConversion, target: Path) -> Sequence[str]:
    """Write the copy. Raises OSError for every exception by which the libraries report a failed write."""
    try:
        return conversion.write(target)
    except (CannotConvert, OSError, MemoryError, RecursionError):
        raise
    except Exception as error:
        raise OSError(str(error).partition("\n")[0].rstrip(".")) from error


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Converts one checkpoint file.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--strip", action="store_true", help="strip the wrapper's prefix from the names")
    parser.add_argument("--safetensors", action="store_true", help="only the state dict, as safetensors")
    parser.add_argument("--room", type=int, required=True, help="limit on bytes written")
    parser.add_argument("--seconds", type=int, required=True, help="limit on processor time")
    return parser.parse_args()


def _stand_back(seconds: int) -> None:
    os.nice(NICENESS)
    # torch starts as many as there are cores, each with memory of its own.
    os.environ["OMP_NUM_THREADS"] = "1"
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


NO_PREFIX = "No prefix was found: the names are as they were saved."


def conversion_of(source: Path, *, strip: bool, safetensors: bool) -> PlannedConversion | str:
    """The file to write; one sentence if the checkpoint already has that form. Raises CannotConvert, OSError."""
    with source.open("rb") as file:
        is_folder, header = is_archive(file), read_header(file)
    if is_folder:
        raise CannotConvert(
            "A folder cannot be converted: its weights are files in the archive, so download it as it was saved."
        )
    if header is None:
        from worker.checkpoints import torch_files

        convert = torch_files.as_safetensors if safetensors else torch_files.without_prefix
        return convert(source, strip) or NO_PREFIX
    if not strip:
        return "It was saved as safetensors and is unchanged."
    return with_shorter_header(source, header) or NO_PREFIX


if __name__ == "__main__":
    main()
