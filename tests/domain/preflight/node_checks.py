"""What healthy nodes measure before a run."""

from __future__ import annotations

from domain.messages import Reached

PYTHON = {
    "path": "/usr/bin/python",
    "python": "3.11.8",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "nccl": "2.21.5",
}
GOOD = {
    "address": "10.0.0.1", "interface": "lan0", "port": 4711, "interpreter": PYTHON, "disk_path": "/data",
    "disk_free_bytes": 50 * 1024**3, "clock_offset_s": 0.01, "code": "a" * 64, "is_prepared": True,
}  # fmt: skip


def way(peer: int = 0, **other) -> Reached:
    reached = {"node_rank": peer, "address": "10.0.0.1", "port": 4711} | ({} if other else {"took_s": 0.0004})
    return Reached(**reached | other)
