"""A DDP script that tries to read and write what is not its own, and writes down how it went.

torchrun --standalone --nproc-per-node=2 spies.py PATH …

Paths that end in a slash are listed, those with a + in front are written."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist


def main(paths: list[str]) -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        outcomes = {path: outcome(path) for path in paths}
        Path("outcomes.json").write_text(json.dumps(outcomes))
        Path("seen.txt").write_bytes(b"\n".join(visible()))
        Path("uid.txt").write_text(str(os.getuid()))
    dist.barrier()
    dist.destroy_process_group()


def outcome(path: str) -> str:
    """The error's name, or what could be done."""
    try:
        if path.startswith("+"):
            Path(path[1:]).write_text("forged")
            return "written"
        if path.endswith("/"):
            return f"listed: {[*Path(path).iterdir()]}"
        return f"read: {len(Path(path).read_bytes())} bytes"
    except OSError as error:
        return type(error).__name__


def visible() -> list[bytes]:
    """The environment and command line of each process, where it can be read."""
    texts = []
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                texts.append((folder / name).read_bytes().replace(b"\0", b"\n"))
            except OSError:
                continue
    return texts


if __name__ == "__main__":
    main(sys.argv[1:])
