"""When the disk of the server's files is full at the present rate, read at most twice a minute."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.service.cost_cache import CostCache
from dashboard.storage.files import Files
from db.checkpoints import arrivals, deleted_checkpoints
from db.engine import Store
from db.people.visibility import Visibility, visibility
from domain.checkpoint_use.forecast import Deletable, StorageForecast, forecast

READ_EVERY_S = 30.0


class DiskForecast:
    """The forecast of one dashboard; safe to use from any thread."""

    def __init__(self, store: Store, files: Files, clock: Callable[[], float]) -> None:
        self._store, self._files, self._clock = store, files, clock
        self._rates = CostCache[None, tuple[float, int]](READ_EVERY_S, clock=clock)
        self._deletable = CostCache[Visibility, list[Deletable]](READ_EVERY_S, clock=clock)

    def now(self, *, with_deletable: bool = True) -> StorageForecast:
        """The forecast, with the checkpoints that the actor sees and that could go."""
        rate, bin_bytes = self._rates.get(None, self._read)
        chosen: list[Deletable] = []
        if with_deletable:
            chosen = self._deletable.get(visibility(), lambda: arrivals.deletable(self._store))
        return forecast(self._files.free_bytes(), rate, bin_bytes, chosen)

    def _read(self) -> tuple[float, int]:
        return arrivals.bytes_per_s(self._store, self._clock()), deleted_checkpoints.size_of_bin(self._store)
