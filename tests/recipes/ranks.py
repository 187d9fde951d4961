"""Runs a function as the ranks of one process group, forked from a server that has imported torch."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

PATIENCE_S = 240


def run_ranks(world_size: int, program: Callable[..., Any], folder: Path, *arguments: Any) -> list[Any]:
    """What `program(folder, *arguments)` returned on each rank; it must be a top-level function."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "torch.distributed.fsdp"])
    folder.mkdir(parents=True, exist_ok=True)
    ranks = [
        context.Process(target=_run_rank, args=(rank, world_size, program, folder, arguments))
        for rank in range(world_size)
    ]
    # A page that an AppTest of this process showed is still __main__; ranks would run it again.
    with patch.dict(sys.modules, {"__main__": ModuleType("__main__")}):
        for rank in ranks:
            rank.start()
    for rank in ranks:
        rank.join(PATIENCE_S)
    stuck = [rank for rank in ranks if rank.exitcode is None]
    for rank in stuck:
        rank.kill()
    assert not stuck, f"{len(stuck)} of {world_size} ranks hang"
    assert [rank.exitcode for rank in ranks] == [0] * world_size
    return [torch.load(folder / f"result{rank}.pt", weights_only=False) for rank in range(world_size)]


def _run_rank(
    rank: int, world_size: int, program: Callable[..., Any], folder: Path, arguments: tuple[Any, ...]
) -> None:
    from parallel import leave_process_group

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    # Data-loader workers start as they do under torchrun, not through a fork server of their own.
    multiprocessing.set_start_method("fork", force=True)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    result = program(folder, *arguments)
    torch.save(result, folder / f"result{rank}.pt")
    if dist.is_initialized():
        leave_process_group()
