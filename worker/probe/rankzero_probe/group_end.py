"""Let the threads of process groups finish while Python's lock is free, before a group is destroyed.

torch joins gloo's threads with the lock held. A thread that drops a finished collective drops Python objects with it,
since torch 2.13 also the context of the backward pass that began it, and waits for the lock: without this a script
whose last lines follow its last step within milliseconds may never end, with or without the probe.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections import deque
from typing import Any

from . import named_as_probe

PAUSE_S = 0.05
"""In which a thread that waits for the lock gets it; nothing tells whether one waits for it with a tensor."""
STEP_S = 0.001
LIMIT_S = 10.0
"""After it the group is destroyed all the same: somebody else keeps the context."""
CONTEXT = "context"
"""The name under which torch hands the context of a backward pass on to every collective begun in it."""

_contexts: deque[weakref.ref[Any]] = deque(maxlen=8)


def note_backward() -> None:
    """Remember the context of the backward pass that calls this: it lives until its collectives are dropped."""
    torch_c = sys.modules["torch"]._C
    if hasattr(torch_c, "_is_key_in_tls") and torch_c._is_key_in_tls(CONTEXT):
        _contexts.append(weakref.ref(torch_c._get_obj_in_tls(CONTEXT)))


def hook_into_process_groups(module: Any) -> None:
    """Wait for the threads before each `destroy_process_group`."""
    destroy = module.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        wait_for_threads()
        return destroy(*args, **kwargs)

    module.destroy_process_group = named_as_probe(destroy_process_group)


def wait_for_threads() -> None:
    """Free Python's lock until the last backward passes are dropped, and for a moment in any case."""
    deadline = time.monotonic() + LIMIT_S
    time.sleep(PAUSE_S)
    while any(context() is not None for context in _contexts) and time.monotonic() < deadline:
        time.sleep(STEP_S)
