"""Tests one device: products of matrices, memory, an all-reduce; run by the Python that trains, imports only torch."""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

MARK = "rankzero-test:"
MIB = 1024 * 1024
SIZES = {"cuda": 1024, "cpu": 384}
"""Rows of the matrices, whose products the CPU computes in whole numbers."""
CHUNK_BYTES = 256 * MIB
GPU_SHARE = 0.9
"""Of a GPU's free memory."""
CPU_BYTES = 256 * MIB
PATTERNS = (0x55555555, -0x55555556, 0x0F0F0F0F)
REDUCED_BYTES = {"cuda": 64 * MIB, "cpu": 4 * MIB}
REDUCED_S = 2.0
BROKEN = ("uncorrectable ECC", "uncorrectable NVLink", "fallen off the bus")


def main() -> None:
    """Print one line of JSON for each part of the test.

    The settings: rank, ranks, kind (cuda or cpu), seconds, address, port, meet_limit_s."""
    sys.path[:] = [folder for folder in sys.path if folder]  # without the current folder
    settings = json.loads(sys.argv[1])
    import torch

    torch.set_num_threads(1)
    device = torch.device("cuda", 0) if settings["kind"] == "cuda" else torch.device("cpu")
    tell("matrix products", lambda: products(torch, device, settings["seconds"]))
    tell("memory", lambda: memory(torch, device))
    if settings["ranks"] > 1:
        tell("all-reduce", lambda: all_reduce(torch, device, settings))


def tell(part: str, test: Callable[[], tuple[bool, str, float | None]]) -> None:
    """Run one part and print what it found; one that cannot be done is neither right nor wrong."""
    is_right: bool | None
    try:
        is_right, text, bytes_per_s = test()
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0][:500]
        is_right, bytes_per_s = (False if any(words in text for words in BROKEN) else None), None
    line = {"part": part, "is_right": is_right, "text": text, "bytes_per_s": bytes_per_s}
    print(f"\n{MARK}{json.dumps(line)}", flush=True)


def products(torch: Any, device: Any, seconds: float) -> tuple[bool, str, float | None]:
    """Multiply matrices of small whole numbers again and again; every product is exact and known."""
    cases = list(known_products(torch, device))
    count, wrong, until = 0, 0, time.monotonic() + seconds
    while count < len(cases) or time.monotonic() < until:
        left, right, expected = cases[count % len(cases)]
        wrong += int(((left @ right) != expected).sum())
        count += 1
    return wrong == 0, f"{count} products, {wrong} wrong numbers" if wrong else f"{count} products, all right", None


def known_products(torch: Any, device: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (left, right, their product as the CPU computes it in whole numbers)."""
    size = SIZES[device.type]
    rows, columns = torch.arange(size).reshape(-1, 1), torch.arange(size).reshape(1, -1)
    types = [(torch.float32, 8)]
    if device.type == "cuda":
        types += [(torch.float64, 8), (torch.float16, 1)]  # half precision has whole numbers up to 2048
    for dtype, most in types:
        left = (rows * 7 + columns * 13) % (2 * most + 1) - most
        right = (rows * 11 + columns * 5) % (2 * most + 1) - most
        expected = (left @ right).to(dtype)
        yield left.to(device, dtype), right.to(device, dtype), expected.to(device)


def memory(torch: Any, device: Any) -> tuple[bool, str, float | None]:
    """Fill most of the free memory with patterns, and read them again."""
    size = int(torch.cuda.mem_get_info(device)[0] * GPU_SHARE) if device.type == "cuda" else CPU_BYTES
    chunks = [
        torch.empty(CHUNK_BYTES // 4, dtype=torch.int32, device=device) for _ in range(max(1, size // CHUNK_BYTES))
    ]
    wrong = 0
    for pattern in PATTERNS:
        for chunk in chunks:
            chunk.fill_(pattern)
        wrong += sum(int((chunk != pattern).sum()) for chunk in chunks)
    text = f"{len(chunks) * CHUNK_BYTES // MIB} MiB, {f'{wrong} wrong numbers' if wrong else 'all right'}"
    return wrong == 0, text, None


def all_reduce(torch: Any, device: Any, settings: dict[str, Any]) -> tuple[bool, str, float | None]:
    """Add numbers that every rank knows over all devices under test, and measure bytes per second."""
    from torch import distributed

    ranks = settings["ranks"]
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"tcp://{settings['address']}:{settings['port']}",
        rank=settings["rank"],
        world_size=ranks,
        timeout=datetime.timedelta(seconds=settings["meet_limit_s"]),
    )
    data = torch.empty(REDUCED_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    wrong, count, took_s = 0, 0, 0.0
    while count < 2 or took_s < REDUCED_S:
        data.fill_(float(settings["rank"] + 1))
        wait_for(torch, device)
        began = time.perf_counter()
        distributed.all_reduce(data)
        wait_for(torch, device)
        slowest = torch.tensor([time.perf_counter() - began], dtype=torch.float64, device=device)
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)  # all go on equally often
        took_s += float(slowest) if count else 0.0  # the first one opens the connections
        wrong += int((data != ranks * (ranks + 1) / 2).sum())
        count += 1
    distributed.destroy_process_group()
    bytes_per_s = REDUCED_BYTES[device.type] * (count - 1) / took_s
    return wrong == 0, f"{count} sums over {ranks} ranks, {'all right' if not wrong else 'some wrong'}", bytes_per_s


def wait_for(torch: Any, device: Any) -> None:
    """Wait until the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
