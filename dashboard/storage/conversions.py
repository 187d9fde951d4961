"""Converted checkpoints (no prefix, safetensors): written by a separate program, cached for an hour."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboard.errors import Rejection
from dashboard.storage.checkpoint_storages import CheckpointStorages
from dashboard.storage.conversion import Conversion
from dashboard.storage.files import Files, discard, free_in_words
from db.models import Checkpoint
from domain.clock import Clock
from domain.text.formats import size


class Conversions:
    """Converts checkpoints, one at a time, in order; results are cached."""

    def __init__(self, files: Files, storages: CheckpointStorages, clock: Clock) -> None:
        self._files, self._storages, self._clock = files, storages, clock
        self._folder = files.converted
        self._running: dict[str, Future[Converted]] = {}
        self._program: subprocess.Popen[bytes] | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="conversions")
        self._lock = threading.Lock()
        self._swept_at = float("-inf")
        self._is_closed = False
        for leftover in self._folder.glob("*.part"):
            discard(leftover)

    def request(self, checkpoint: Checkpoint, conversion: Conversion) -> Future[Converted]:
        """A future of the converted checkpoint, shared by equal requests. It may fail with a Rejection.

        Raises Rejection when the checkpoint is incomplete or too many requests wait."""
        stem = f"{checkpoint.id}-{checkpoint.sha256[:16]}{''.join(conversion.options)}"
        with self._lock:
            if (running := self._running.get(stem)) is not None:
                return running
            if (cached := self._cached(stem, checkpoint)) is not None:
                return cached
            if not checkpoint.complete:
                raise Rejection(409, f"Checkpoint {checkpoint.id} is not complete yet.")
            if len(self._running) >= MOST_WAITING or self._is_closed:
                raise Rejection(503, "Too many checkpoints are being converted; try again in a minute.")
            future = self._threads.submit(self._convert, stem, checkpoint, conversion)
            self._running[stem] = future
        future.add_done_callback(lambda _: self._running.pop(stem, None))
        return future

    def sweep(self) -> None:
        """Delete results that have not been requested for an hour; called once a second."""
        if self._clock.now() - self._swept_at < SWEEP_EVERY_S:
            return
        self._swept_at = self._clock.now()
        for result_path in self._folder.glob("*.json"):
            try:
                if self._clock.wall() - result_path.stat().st_mtime > KEEP_S:
                    result_path.unlink()
                    result_path.with_suffix("").unlink(missing_ok=True)
            except FileNotFoundError:  # deleted with its checkpoint
                pass

    def close(self) -> None:
        """Kill the running program and take no more requests."""
        with self._lock:
            self._is_closed = True
            if self._program is not None:
                self._program.kill()
        self._threads.shutdown(cancel_futures=True)

    # -- cached results ------------------------------------------------------------------------

    def _cached(self, stem: str, checkpoint: Checkpoint) -> Future[Converted] | None:
        try:
            result = json.loads(self._result_path(stem).read_text())
        except (OSError, ValueError):
            return None
        future: Future[Converted] = Future()
        if refused := result.get("refused"):
            future.set_exception(Rejection(422, refused))
            return future
        converted = self._converted(stem, checkpoint, result)
        if converted.path is not None and not converted.path.exists():
            return None
        os.utime(self._result_path(stem))
        future.set_result(converted)
        return future

    def _converted(self, stem: str, checkpoint: Checkpoint, result: dict[str, Any]) -> Converted:
        if result.get("unchanged"):
            return Converted(None, checkpoint.sha256, checkpoint.size_bytes, result["notes"])
        return Converted(self._folder / stem, result["sha256"], result["size_bytes"], result["notes"])

    def _result_path(self, stem: str) -> Path:
        return self._folder / f"{stem}.json"

    # -- writing -------------------------------------------------------------------------------

    def _convert(self, stem: str, checkpoint: Checkpoint, conversion: Conversion) -> Converted:
        folder = self._folder / f"{stem}.part"  # the program also writes files that it deletes again
        folder.mkdir(mode=0o700)
        draft = folder / "copy"
        seconds = LEAST_S + checkpoint.size_bytes // SLOWEST_BYTES_PER_S
        try:
            with self._storages.as_file(checkpoint, folder) as source:
                result = self._run(source, draft, conversion, seconds)
            _require_success(result, self._files.free_bytes())
            if draft.exists():
                draft.replace(self._folder / stem)
            elif "sha256" in result:
                raise Rejection(410, "The checkpoint was deleted meanwhile.")
            self._result_path(stem).write_text(json.dumps(result))
        finally:
            discard(folder)
        if refused := result.get("refused"):
            raise Rejection(422, refused)
        log.info("checkpoint %d converted (%s)", checkpoint.id, " ".join(conversion.options))
        return self._converted(stem, checkpoint, result)

    def _run(self, source: Path, draft: Path, conversion: Conversion, seconds: int) -> dict[str, Any]:
        """Run the program; returns the JSON object that it prints."""
        limits = ["--room", str(max(0, self._files.free_bytes())), "--seconds", str(seconds)]
        argv = [sys.executable, "-P", "-m", "worker.checkpoints.convert", str(source), str(draft)]
        with self._lock:
            if self._is_closed:
                raise Rejection(503, "The dashboard is shutting down; ask again when it is back.")
            self._program = subprocess.Popen(
                [*argv, *conversion.options, *limits],
                stdin=subprocess.PIPE,  # stays open: the program ends when this process does
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")},
            )
        try:
            return _read_result(self._program, seconds, self._clock)
        finally:
            with self._lock:
                self._program = None


log = logging.getLogger("rankzero")
KEEP_S = 3600.0
"""Seconds for which a converted checkpoint is cached after its last request."""
SWEEP_EVERY_S = 60.0
MOST_WAITING = 8
LEAST_S = 300
"""Torch alone takes seconds to load, and much longer beside a training on every core."""
SLOWEST_BYTES_PER_S = 20_000_000
"""Slowest disk that a conversion is expected to work with; it sets the time limit."""


@dataclass(frozen=True)
class Converted:
    """A converted checkpoint, with notes for the user."""

    path: Path | None
    """None when there was nothing to convert."""
    sha256: str
    size_bytes: int
    notes: Sequence[str]


def _kill_when_late(program: subprocess.Popen[bytes], limit_s: float, clock: Clock, ended: threading.Event) -> None:
    if not clock.pause(limit_s, ended):
        program.kill()


def _read_result(program: subprocess.Popen[bytes], limit_s: int, clock: Clock) -> dict[str, Any]:
    with program:
        assert program.stdout is not None
        ended = threading.Event()
        clock.start("conversion's limit", lambda: _kill_when_late(program, limit_s, clock, ended))
        try:
            output = program.stdout.read()  # communicate() would close its standard input
            exit_code = program.wait()
        finally:
            ended.set()
    last_line = output.decode(errors="replace").strip().rpartition("\n")[2]
    try:
        result = json.loads(last_line)
        if isinstance(result, dict):
            return result
    except ValueError:
        pass
    log.error("a checkpoint could not be converted: exit code %d %s", exit_code, last_line[:500])
    raise Rejection(
        422 if exit_code < 0 else 500,
        f"The checkpoint could not be converted within {limit_s} s and the memory that is given to it; "
        "download it as it was saved.",
    )


def _require_success(result: dict[str, Any], free_bytes: int) -> None:
    if result.get("no_room"):
        raise Rejection(
            507,
            f"The server's disk has {free_in_words(free_bytes)} free beyond its reserve; the converted checkpoint "
            f"needs {size(result['size_bytes'])}. Free some space there, or download it as it was saved.",
        )
    if failed := result.get("failed"):
        raise Rejection(507, failed)
