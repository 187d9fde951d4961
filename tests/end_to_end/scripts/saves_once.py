"""Saves one large checkpoint, or says what it resumes from; then waits to be told: python saves_once.py FILE MIB"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path


def main(release: Path, mib: int) -> None:
    if resume := os.environ.get("RANKZERO_RESUME"):
        print("resumes from", hashlib.sha256(Path(resume).read_bytes()).hexdigest(), flush=True)
    else:
        save(Path("large.safetensors"), os.urandom(mib << 20))
    while not release.exists():
        time.sleep(0.1)


def save(path: Path, content: bytes) -> None:
    tensor = {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}
    header = json.dumps({"w": tensor}).encode()
    part = path.with_suffix(".part")
    part.write_bytes(len(header).to_bytes(8, "little") + header + content)
    part.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
