"""State of this process: written by the training's threads, read by the recorder's."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .phase_clock import PhaseClock

MAX_STEPS = 4096
MAX_EVENTS = 1000
MAX_OPTIMIZERS = 16
DIGEST_LENGTHS = (16, 64, 256)
"""Ranks are compared by the longest of these prefixes that both have read."""


class Epoch:
    """One pass over a data loader."""

    def __init__(self, loader: Loader, sampler: dict[str, Any]) -> None:
        self.loader, self.sampler = loader, sampler
        self.indices: list[Any] = []
        self.is_full = False
        self.fields: list[list[Any]] | None = None
        self.steps = self.first_step = 0
        self.is_reported = False

    def add(self, index: Any) -> None:
        """Remember the first indices; `index` is one, or a batch of them."""
        if isinstance(index, list):
            self.indices.extend(index)
        else:
            self.indices.append(index)
        self.is_full = len(self.indices) >= DIGEST_LENGTHS[-1] or index is None


class Loader:
    """A data loader, identified by its index sampler; it is used for training if steps follow its batches."""

    def __init__(self, sampler: Any, batch_size: int | None, dataset_length: int | None) -> None:
        self.sampler = weakref.ref(sampler)
        self.batch_size, self.dataset_length = batch_size, dataset_length
        self.steps = 0
        self.reads_tokens: bool | None = None
        self.epoch: Epoch | None = None


class ProcessState:
    """Plain attributes: a step may last a millisecond, and a hook must take less than a hundredth of it."""

    def __init__(self) -> None:
        self.thread = threading.main_thread().ident
        self.off: set[str] = set()
        self.events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        # Steps
        self.step = 0
        self.stepped_at = 0.0
        self.optimizer_id = 0
        self.optimizer: Callable[[], Any] = _nothing
        self.steps_of_others = 0
        self.steps: deque[tuple[float, float | None, int | None, int]] = deque(maxlen=MAX_STEPS)
        """(seconds, seconds of waiting for data, samples, tokens) of steps that the recorder has not read yet."""
        self.clock = PhaseClock()
        # Start
        self.start_phases: set[str] = set()
        self.compile_began = self.compiling_since = self.compiled_s = 0.0
        # Data
        self.in_data = False
        self.wait_s = self.start_wait_s = 0.0
        self.samples: int | None = None
        self.tokens = 0
        self.loader: Loader | None = None
        self.loaders: dict[int, Loader] = {}
        self.epoch: Epoch | None = None
        self.epochs: list[Epoch] = []
        # Memory
        self.optimizers: deque[Callable[[], Any]] = deque(maxlen=MAX_OPTIMIZERS)
        self.is_memory_due = True
        self.device_memory: dict[str, int] = {}
        self.record_history: Callable[..., Any] | None = None
        self.is_recording_history = False
        self.snapshots = 0
        # Replicas
        self.check_at = -1
        self.wrapped_at = 0
        self.replicas: list[Any] = []
        self.reduced_passes: dict[int, int] = {}
        # Profile
        self.profile_at = -1
        self.profilers: weakref.WeakSet[Any] = weakref.WeakSet()
        """The script's own profilers that are open."""

    def note(self, kind: str, **facts: Any) -> None:
        """Add an event to the next record."""
        self.events.append({"kind": kind, "at": round(time.time(), 3), **facts})

    def failed(self, hook: str, error: BaseException) -> None:
        """Switch this part of the probe off and report its error once."""
        if hook not in self.off:
            self.off.add(hook)
            self.note("error", hook=hook, message=f"{type(error).__name__}: {error}"[:300])


def is_in_process_group() -> bool:
    """Whether torch.distributed is initialised; another thread may be importing it just now."""
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def _nothing() -> None:
    return None


current = ProcessState()


def reset() -> None:
    """Reset the state: in a forked child, and where a process begins to watch itself."""
    global current
    current = ProcessState()


class _AllParts(set[str]):
    """Contains every part of the probe."""

    def __contains__(self, part: object) -> bool:
        return True


def switch_off() -> None:
    """Begin a state in which every part is off."""
    reset()
    current.off = _AllParts()


os.register_at_fork(after_in_child=reset)
