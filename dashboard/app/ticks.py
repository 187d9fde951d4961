"""The work that the dashboard does by itself once a second."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from dashboard.alerts.watch import AlertWatch
from dashboard.compare.resumed_losses import ResumedLosses
from dashboard.service import upkeep
from dashboard.service.service import Service
from dashboard.studies.conductor import StudyConductor
from db.engine import StoreGone

log = logging.getLogger("rankzero")
TICK_S = 1.0


@contextmanager
def ticking(shared: Service) -> Iterator[None]:
    """Tick in a thread of its own; on return nothing ticks any more."""
    watch, ended = AlertWatch(shared), threading.Event()
    studies, losses = StudyConductor(shared), ResumedLosses(shared)
    ticks = (partial(upkeep.tick, shared), shared.sessions.tick, studies.tick, losses.tick, watch.tick)
    done = shared.clock.time.start("ticks", lambda: _tick_until(ended, shared, ticks))
    try:
        yield
    finally:
        ended.set()
        done.wait()
        watch.close()


def _tick_until(ended: threading.Event, shared: Service, ticks: Sequence[Callable[[], None]]) -> None:
    while not ended.is_set():
        try:
            for tick in ticks:
                tick()
        except StoreGone:
            pass  # the store has logged it
        except Exception:
            if shared.store.trouble is None:  # otherwise the pages show it, and the next tick tries again
                log.exception("tick failed")
        shared.clock.time.pause(TICK_S, ended)
