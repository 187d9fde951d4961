"""Leaving cleanly: a signal sets a flag, and the ranks agree on the step after which all of them stop."""

import signal
from types import FrameType

import torch
import torch.distributed as dist

from parallel import Parallel


class StopRequest:
    """Remembers that SIGTERM or Ctrl-C arrived; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.received = False

    def listen(self) -> None:
        """Take over SIGTERM and SIGINT in the main thread."""
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class StopVote:
    """One vote a step: a rank may get the signal a step later than another, and must not wait for it alone.

    The vote is cast when the backward pass is over and read after the optimizer's step, so that its
    one-element all-reduce (always on the CPU, by gloo) overlaps with the optimizer.
    """

    def __init__(self, parallel: Parallel, request: StopRequest) -> None:
        self._parallel = parallel
        self._request = request
        self._flag = torch.zeros(1)
        self._pending: dist.Work | None = None

    def cast(self) -> None:
        """Say whether this rank was asked to stop."""
        self._flag.fill_(float(self._request.received))
        if self._parallel.is_distributed:
            self._pending = dist.all_reduce(self._flag, op=dist.ReduceOp.MAX, async_op=True)

    def passed(self) -> bool:
        """Whether any rank was asked to stop: the same answer on every rank."""
        if self._pending is not None:
            self._pending.wait()
        return bool(self._flag.item())


def leave_signals_to_parent(worker_id: int) -> None:
    """Data-loader workers get torchrun's SIGTERM too; they must outlive it until their rank has saved."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
