"""The stores of loggers below an attempt's working directories, where the probe does not see the calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from domain.clock import SYSTEM_CLOCK, Clock
from worker.loggers import csv_table, databases, mlflow, trainer_state
from worker.loggers.csv_table import CsvTable
from worker.loggers.mlflow import Database, MetricFile
from worker.loggers.store_source import Judge, LoggerStore, ObservedRuns, SharedNames, StoreSource
from worker.loggers.trainer_state import TrainerStates
from worker.loggers.wandb import WandbFile
from worker.node.attempt_files import EXISTING_FILE
from worker.node.regular_files import append
from worker.node.run_files import LOGGERS, data_directory, name_on_server, walk_files
from worker.node.scans import pause_after
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import OffsetOf

SETTINGS_EVERY_S = 5.0
MAX_STORES = 2000
SETTINGS_FILE = f"{LOGGERS}/settings-0.jsonl"
"""Beside those of the probe, which are named by processes."""


class LoggerStores:
    """The stores of one attempt on this node."""

    def __init__(
        self,
        attempt: Path,
        roots: Sequence[Path],
        offset_of: OffsetOf,
        names: SharedNames,
        of_event_files: Callable[[], Mapping[str, Any]] = dict,
        omissions: Omissions | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`of_event_files` returns the hyperparameters in event files, which have no other way to the server."""
        self._of_event_files, self._omissions, self._clock = of_event_files, omissions, clock
        self._attempt, self._roots = attempt.resolve(), [root.resolve() for root in roots]
        self._offset_of, self._names, self._observed = offset_of, names, ObservedRuns(attempt)
        self._sources: dict[str, StoreSource] = {}
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._scan_at = self._settings_at = float("-inf")
        self._is_frozen = False

    def sources(self, final: bool) -> Iterator[StoreSource]:
        """Yield the source of each store; `final`: the writers have ended. Raises what `offset_of` raises."""
        now = self._clock.now()
        if now >= self._scan_at:
            self._scan()
            self._scan_at = self._clock.now() + pause_after(self._clock.now() - now)
        if now >= self._settings_at:
            self._write_settings()
            self._settings_at = now + SETTINGS_EVERY_S
        for source in self._sources.values():
            if self._is_frozen:
                source.freeze()
            if final:
                source.finish()
            yield source
        if final:  # a restarted worker knows the runs only now that it has read their files
            self._write_settings()

    def look_again(self) -> None:
        """Look for new stores and settings at the next step, due or not."""
        self._scan_at = self._settings_at = float("-inf")

    def freeze(self) -> None:
        """Look again, and read each store as far as it reaches then: what a stranger appends is not the run's."""
        self.look_again()
        self._is_frozen = True

    def _scan(self) -> None:
        began_at = _time_of(self._attempt / EXISTING_FILE)
        for store in islice(self._stores(began_at), MAX_STORES):
            if store.path not in self._sources:
                judge = Judge(self._names, self._observed, began_at)
                offset = self._offset_of(store.path, 0)
                self._sources[store.path] = StoreSource(store, offset, judge, self._omissions)

    def _stores(self, began_at: float) -> Iterator[LoggerStore]:
        for root in self._roots:
            for entry in walk_files(root, _is_of_a_store, data_directory(self._attempt)):
                yield from self._stores_at(Path(entry.path), root, began_at)

    def _stores_at(self, file: Path, root: Path, began_at: float) -> Iterator[LoggerStore]:
        path = name_on_server(file, self._attempt, root)
        if file.name == mlflow.META:
            for metric in mlflow.files(file.parent / mlflow.METRICS_FOLDER):
                yield MetricFile(name_on_server(metric, self._attempt, root), file.parent, metric)
        elif file.name.endswith(".wandb"):
            yield WandbFile(path, file)
        elif file.name == trainer_state.FILE:
            folder = trainer_state.folder_of(file)
            path = name_on_server(folder / trainer_state.FILE, self._attempt, root)
            yield TrainerStates(path, folder, began_at)
        elif file.name in csv_table.NAMES:
            yield CsvTable(path, file)
        elif path in self._sources or databases.tables_of(file) >= mlflow.TABLES:
            yield Database(path, file)

    def _write_settings(self) -> None:
        """Append what has changed of hyperparameters and tags to the file that is mirrored."""
        lines = []
        for run, logger, settings in self._all_settings():
            if settings and settings != self._settings.get(run):
                self._settings[run] = settings
                lines.append({"t": self._clock.wall(), "logger": logger, "settings": settings})
        if lines:
            _append(self._attempt / SETTINGS_FILE, "".join(json.dumps(line) + "\n" for line in lines))

    def _all_settings(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield the run, the logger and the settings of all that has some."""
        sources = {run: source for source in self._sources.values() for run in source.runs}
        for run, source in sources.items():
            yield run, source.logger, source.settings(run)
        if config := self._of_event_files():
            yield "", "tensorboard", {"config": config}


def _is_of_a_store(name: str) -> bool:
    is_named = name in (mlflow.META, trainer_state.FILE, *csv_table.NAMES) or name.endswith(".wandb")
    return is_named or databases.is_database(name)


def _time_of(file: Path) -> float:
    """Return when a file was written, in seconds since the epoch; 0 if there is none."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _append(file: Path, text: str) -> None:
    with suppress(OSError):  # a full disk: the points still count
        file.parent.mkdir(parents=True, exist_ok=True)
        append(file, text)
