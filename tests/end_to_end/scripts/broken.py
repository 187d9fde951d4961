"""Fails in the way its first argument names; needs no torch, so that it fails quickly."""

from __future__ import annotations

import os
import signal
import sys
import time


def main(how: str) -> None:
    rank = int(os.environ.get("RANK", "0"))
    print(f"rank {rank} is about to do: {how}", flush=True)
    if rank != 1:
        time.sleep(600)
    WAYS[how]()


def raise_an_error() -> None:
    raise ValueError("the picture has 3 channels, the model wants 1")


def exit_with_3() -> None:
    sys.exit(3)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def import_nothing() -> None:
    import a_module_nobody_has  # noqa: F401


def print_garbage() -> None:
    os.write(1, bytes(range(256)) * 40 + b"\x1b[31mred\x1b[0m \xf0\x9f\x98\x80 <b>bold</b>\n")
    raise RuntimeError("after the garbage")


def take_too_much_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))
    bytearray(2**40)


WAYS = {
    "raise": raise_an_error,
    "exit": exit_with_3,
    "kill": kill_itself,
    "import": import_nothing,
    "garbage": print_garbage,
    "memory": take_too_much_memory,
}

if __name__ == "__main__":
    main(sys.argv[1])
