"""The figures of projects, shared by all who look at one: with many runs they take a while to read."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from db.engine import Store
from db.queries import projects
from db.queries.projects import ProjectView

CPU_SHARE = 0.05
"""Share of one core that reading one project may take."""
MOST_CACHED = 64


class ProjectViews:
    """The last view of each project, read again once it has cost little enough."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._lock = threading.Lock()
        self._views: weakref.WeakKeyDictionary[Store, dict[str, tuple[float, ProjectView]]] = (
            weakref.WeakKeyDictionary()
        )

    def latest(self, store: Store, name: str, now: float) -> ProjectView:
        """Return a project as it was a moment ago. Raises NoSuchProject."""
        with self._lock:
            views = self._views.setdefault(store, {})
            expires_at, view = views.get(name, (float("-inf"), None))
            if view is None or self._clock() >= expires_at:
                began_s = self._cpu_clock()
                view = projects.project(store, name, now)
                spent_s = self._cpu_clock() - began_s
                if len(views) >= MOST_CACHED:
                    views.clear()
                views[name] = self._clock() + spent_s / CPU_SHARE, view
            return view
