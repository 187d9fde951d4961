"""What outlives the worker: which account each attempt of this node is under."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from worker.node.state_files import read_object, write_whole


class AccountRecord:
    """Which account each attempt of this node was given to, in a file of the worker's own."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        stored = read_object(path)
        self._accounts: dict[str, str] = dict(stored.get("accounts") or {})
        self._open: set[str] = set(stored.get("open") or ())

    def account_of(self, attempt: str) -> str | None:
        """The account of RUN/ATTEMPT; None for one that was given to none."""
        return self._accounts.get(attempt)

    @property
    def open_attempts(self) -> list[str]:
        """RUN/ATTEMPT of those that are not settled."""
        return sorted(self._open)

    def attempts_of(self, account: str) -> list[str]:
        """RUN/ATTEMPT of those of an account that are not settled."""
        return [attempt for attempt in self.open_attempts if self._accounts.get(attempt) == account]

    @property
    def open_accounts(self) -> set[str]:
        """The accounts with attempts that are not settled."""
        return {self._accounts[attempt] for attempt in self._open if attempt in self._accounts}

    def give(self, attempt: str, account: str) -> None:
        """Record that an attempt is under this account. Raises OSError."""
        with self._lock:
            if self._accounts.get(attempt) != account or attempt not in self._open:
                self._accounts[attempt] = account
                self._open.add(attempt)
                self._write()

    def settle(self, account: str, unsettled: set[str]) -> None:
        """Record which attempts of an account are not settled."""
        with self._lock:
            over = {one for one in self._open if self._accounts.get(one) == account and one not in unsettled}
            if over:
                self._open -= over
                self._write()

    def _write(self) -> None:
        surplus = len(self._accounts) - MOST_REMEMBERED
        for attempt in [one for one in self._accounts if one not in self._open][: max(0, surplus)]:
            del self._accounts[attempt]
        write_whole(self._path, json.dumps({"accounts": self._accounts, "open": sorted(self._open)}))


MOST_REMEMBERED = 10_000
"""Attempts; more are only remembered while they are not settled."""
