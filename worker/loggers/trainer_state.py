"""Transformers' `trainer_state.json` as a store that grows: the Trainer writes its full history at each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from domain.text.json_values import NestedTooDeeply, parse_json
from worker.loggers.store_source import Logged, LoggedPoint
from worker.node.regular_files import bytes_of

FILE = "trainer_state.json"
CHECKPOINTS = "checkpoint-*"
LOGGER = "trainer"
MOST_BYTES = 256 * 1024**2
PREFIXES = {"eval_": "eval/", "test_": "test/"}
SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
BESTS = ("best_metric", "best_global_step", "best_model_checkpoint")

Entry = dict[str, Any]
"""What the Trainer logged at once: values by their names, and `step`."""


class WrittenState(NamedTuple):
    """One file as it was read."""

    written_at: float
    """Seconds since the epoch."""
    document: dict[str, Any]

    @property
    def history(self) -> list[Entry]:
        """The entries logged until then, oldest first."""
        return list(self.document["log_history"])


class TrainerStates:
    """The files of one output directory, whose histories begin alike; offsets are numbers of entries."""

    logger = LOGGER

    def __init__(self, path: str, folder: Path, began_at: float) -> None:
        """`path` is its name on the server; `began_at` is when the attempt began, in seconds since the epoch."""
        self.path, self._folder, self._began_at, self._position = path, folder, began_at, 0
        self._read: dict[Path, tuple[tuple[int, int], WrittenState | None]] = {}

    @property
    def size_bytes(self) -> int:
        """Number of entries; 0 if there are none."""
        return max((len(state.history) for state in self._own()), default=0)

    def restart(self) -> None:
        """Yield the first entry next."""
        self._position = 0

    def records(self) -> Iterator[Logged]:
        """Yield the entries behind those that were yielded before, with the time of the first file that has them."""
        before = self._entries_before()
        for state in sorted(self._own(), key=lambda state: len(state.history)):
            for entry in state.history[self._position :]:
                self._position += 1
                logged = list(points(entry, state.written_at))
                if logged and self._position > before:
                    yield Logged(self._position, str(self._folder), logged)

    def settings(self, run: str) -> dict[str, Any]:
        """Return the hyperparameters that the newest file has, and which checkpoint is the best."""
        newest = max(self._own(), key=lambda state: state.written_at, default=None)
        document = newest.document if newest else {}
        config, summary = ({name: document[name] for name in names if document.get(name) is not None}
                           for names in (SETTINGS, BESTS))  # fmt: skip
        return {name: values for name, values in (("config", config), ("summary", summary)) if values}

    def _own(self) -> list[WrittenState]:
        """The files that this attempt wrote."""
        return [state for state in self._states() if state.written_at >= self._began_at]

    def _entries_before(self) -> int:
        """Number of entries that an earlier attempt logged: those of the checkpoint that this one resumed from."""
        own = max((state.history for state in self._own()), key=len, default=[])
        older = [state.history for state in self._states() if state.written_at < self._began_at]
        return max((len(history) for history in older if own[: len(history)] == history), default=0)

    def _states(self) -> Sequence[WrittenState]:
        """All files as they are now; one that is being written is left out."""
        files = [self._folder / FILE, *self._folder.glob(f"{CHECKPOINTS}/{FILE}")]
        states = {file: self._state(file) for file in files}
        self._read = {file: read for file, read in self._read.items() if file in states}
        return [state for state in states.values() if state is not None]

    def _state(self, file: Path) -> WrittenState | None:
        try:
            status = file.stat()
            version = (status.st_mtime_ns, status.st_size)
            if self._read.get(file, (None, None))[0] != version:
                self._read[file] = (version, _parsed(file, status.st_mtime, status.st_size))
            return self._read[file][1]
        except OSError:
            return None


def folder_of(file: Path) -> Path:
    """The output directory of a `trainer_state.json`, which is in it or in one of its checkpoints."""
    return file.parent.parent if file.parent.match(CHECKPOINTS) else file.parent


def points(entry: Entry, wall: float) -> Iterator[LoggedPoint]:
    """Yield the numbers of an entry, named as the Trainer names them for its loggers."""
    step = entry.get("step")
    if not isinstance(step, int):
        return
    for key, value in entry.items():
        if key != "step" and isinstance(value, int | float) and not isinstance(value, bool):
            prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
            name = PREFIXES.get(prefix, "train/") + key.removeprefix(prefix)
            yield LoggedPoint(name, step, float(value), wall)


def _parsed(file: Path, written_at: float, size: int) -> WrittenState | None:
    """Read a file; None if it is no state, or incomplete. Raises ValueError for one that will never be readable."""
    if size > MOST_BYTES:
        raise ValueError(f"{file.name} has {size:,} bytes, at most {MOST_BYTES:,} are read")
    try:
        document = parse_json(bytes_of(file))
    except NestedTooDeeply:
        raise
    except ValueError:
        return None
    history = document.get("log_history") if isinstance(document, dict) else None
    is_state = isinstance(history, list) and all(isinstance(entry, dict) for entry in history)
    return WrittenState(written_at, document) if is_state else None
