"""Ask a dashboard from a script or notebook, with the command line's words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from domain.clients.addresses import NoDashboard, address_at, find_address
from domain.clients.answers import Document
from rankzero.connection import Connection
from rankzero.errors import Refused
from rankzero.runs import Run
from rankzero.sweeps import Sweep


def connect(url: str | None = None, token: str | None = None) -> Client:
    """Connect to a dashboard: the one at `url`, else the one that the command line asks.

    That is the one of RANKZERO_URL, with RANKZERO_TOKEN or the file RANKZERO_TOKEN_FILE; else that of the latest
    `rankzero login`, else the one on this machine. Raises RankzeroError."""
    try:
        address = find_address(token=token) if url is None else address_at(url, token, named_by="url")
    except NoDashboard as error:
        raise Refused(str(error)) from None
    return Client(Connection(address))


class Client:
    """A dashboard, as the holder of its token sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The dashboard's address."""
        return self._connection.address.url

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def runs(self, filter: str = "", sort: str = "", limit: int = 200) -> list[Run]:
        """Return the runs that match a search (`state:failed lr>0.001`), newest first or sorted.

        Raises RankzeroError."""
        found, most = list[Run](), limit
        while len(found) < most:
            size = min(most - len(found), PAGE)
            page = self._connection.get("/api/runs", filter=filter, sort=sort, limit=size, offset=len(found))
            found += [Run(self._connection, fields) for fields in page]
            if len(page) < size:
                break
        return found

    def run(self, run: str) -> Run:
        """Return a run by its id or the beginning of it, its name, or `latest`. Raises RankzeroError."""
        run_id = self._connection.get("/api/named-runs", name=run)["id"]
        return self._run(run_id)

    def launch(self, spec: Mapping[str, Any] | str | Path | None = None, /, **fields: Any) -> Run:
        """Launch a run: `launch("train.py", nodes=2, gpus_per_node=4, args=["--width", "512"])`.

        `spec` is its target, or an earlier `run.spec`; the fields, the options of `rankzero launch`, replace what that
        has. A path is read on the dashboard's machine; `rankzero launch` sends code from here. Raises RankzeroError."""
        launched = self._connection.post("/api/runs", _spec(spec, fields))
        return self._run(launched["id"])

    def sweep(
        self, spec: Mapping[str, Any], parameters: Mapping[str, Any], metric: str, goal: str = "min", **options: Any
    ) -> Sweep:
        """Train a spec with different parameters: `{"lr": {"values": [0.1, 0.01]}}`, and find the best by a metric.

        `options` are those of `POST /api/sweeps`: trials, search, parallel, … Raises RankzeroError."""
        request = {"spec": _spec(spec, {}), "parameters": dict(parameters), "metric": metric, "goal": goal}
        return Sweep(self._connection, self._connection.post("/api/sweeps", request | options))

    def nodes(self) -> list[Document]:
        """Return the nodes, with their devices and what runs there; fields are attributes. Raises RankzeroError."""
        return list(self._connection.get("/api/nodes"))

    def _run(self, run_id: str) -> Run:
        return Run(self._connection, self._connection.get(f"/api/runs/{run_id}"))


PAGE = 1000
"""Runs that one request returns at most."""


def _spec(spec: Mapping[str, Any] | str | Path | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Put a spec together; a path that exists here is made absolute."""
    base = {"target": str(spec)} if isinstance(spec, str | Path) else spec or {}
    wanted = {**base, **fields}
    target = wanted.get("target")
    if isinstance(target, str | Path) and Path(target).exists():
        wanted["target"] = str(Path(target).absolute())
    return wanted
