"""Fails in the way its first argument names; needs no torch unless it must, so that it fails quickly."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable

RANK = int(os.environ.get("RANK", "0"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=WAYS)
    parser.add_argument("--rank", type=int, default=1, help="the rank that fails")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    print(f"rank {RANK} is about to do: {arguments.how}", flush=True)
    if arguments.rank not in (RANK, -1):
        time.sleep(600)
    WAYS[arguments.how](arguments)


def raise_an_error(_: argparse.Namespace) -> None:
    raise ValueError("the picture has 3 channels, the model wants 1")


def exit_with_3(_: argparse.Namespace) -> None:
    sys.exit(3)


def kill_itself(_: argparse.Namespace) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash(_: argparse.Namespace) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def import_nothing(_: argparse.Namespace) -> None:
    import a_module_nobody_has  # noqa: F401


def print_garbage(_: argparse.Namespace) -> None:
    os.write(1, bytes(range(256)) * 40 + b"\x1b[31mred\x1b[0m \xf0\x9f\x98\x80 <b>bold</b>\n")
    raise RuntimeError("after the garbage")


def take_too_much_memory(_: argparse.Namespace) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))
    bytearray(2**40)


def read_what_is_not_there(_: argparse.Namespace) -> None:
    with open("data/train.csv") as file:  # noqa: PTH123
        print(file.read())


def print_its_traceback_and_leave(_: argparse.Namespace) -> None:
    import traceback

    try:
        raise KeyError("label")
    except KeyError:
        print(traceback.format_exc())
        sys.exit(4)


def take_a_port(arguments: argparse.Namespace) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{arguments.port}", rank=0, world_size=1)


def lose_a_peer(_: argparse.Namespace) -> None:
    """Rank 1 raises, and rank 0 hears of it in a collective."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    if RANK == 1:
        raise ValueError("bad labels")
    dist.all_reduce(torch.ones(4))


def wait_in_vain(_: argparse.Namespace) -> None:
    """Rank 1 comes too late to a collective."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=4))
    dist.barrier()
    if RANK == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(4))


def spawn(_: argparse.Namespace) -> None:
    import torch.multiprocessing

    torch.multiprocessing.spawn(in_a_spawned_process, nprocs=2)


def in_a_spawned_process(rank: int) -> None:
    if rank == 1:
        raise ValueError("bad labels")
    time.sleep(600)


WAYS: dict[str, Callable[[argparse.Namespace], None]] = {
    "raise": raise_an_error,
    "exit": exit_with_3,
    "kill": kill_itself,
    "crash": crash,
    "import": import_nothing,
    "garbage": print_garbage,
    "memory": take_too_much_memory,
    "file": read_what_is_not_there,
    "print": print_its_traceback_and_leave,
    "port": take_a_port,
    "peer": lose_a_peer,
    "wait": wait_in_vain,
    "spawn": spawn,
}

if __name__ == "__main__":
    main()
