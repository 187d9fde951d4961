"""Measures an all-reduce between two nodes; run by the Python that trains, so it imports nothing of Rankzero."""

from __future__ import annotations

import datetime
import json
import sys
import time

MARK = "rankzero-bytes-per-second:"
MIB = 1024 * 1024
SIZE_BYTES = {"gloo": 4 * MIB, "nccl": 64 * MIB}
"""Large enough to measure bandwidth instead of latency, small enough for a slow link."""
MAX_REPETITIONS = 10_000


def main() -> None:
    """Print the measured bandwidth in bytes per second as one line.

    Algorithm bandwidth S / t: bytes of the tensor divided by the mean time of one all-reduce. With two ranks the bus
    bandwidth, S / t * 2 (n - 1) / n, is the same (nccl-tests, doc/PERFORMANCE.md)."""
    sys.path[:] = [folder for folder in sys.path if folder]  # without the current folder
    settings = json.loads(sys.argv[1])
    import torch
    from torch import distributed

    backend = settings["backend"]
    device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")
    distributed.init_process_group(
        backend,
        init_method=f"tcp://{_host(settings['address'])}:{settings['port']}",
        rank=settings["rank"],
        world_size=2,
        timeout=datetime.timedelta(seconds=settings["meet_limit_s"]),
    )
    data = torch.zeros(SIZE_BYTES[backend] // 4, dtype=torch.float32, device=device)

    def time_of(count: int) -> float:
        _wait_for(torch, device)
        began = time.perf_counter()
        for _ in range(count):
            distributed.all_reduce(data)
        _wait_for(torch, device)
        slowest_s = torch.tensor([time.perf_counter() - began], dtype=torch.float64, device=device)
        distributed.all_reduce(slowest_s, op=distributed.ReduceOp.MAX)  # both continue with the same number
        return float(slowest_s)

    time_of(1)  # the first all-reduce opens the connections
    single_s = time_of(2) / 2
    count = max(1, min(MAX_REPETITIONS, int(settings["seconds"] / max(single_s, 1e-9))))
    took_s = time_of(count)
    print(f"\n{MARK}{SIZE_BYTES[backend] * count / took_s}", flush=True)
    distributed.destroy_process_group()


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _wait_for(torch: object, device: object) -> None:
    if getattr(device, "type", "cpu") == "cuda":
        torch.cuda.synchronize(device)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
