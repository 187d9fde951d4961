"""Checkpoints in another form (no prefix, safetensors): written by a program apart, kept for a while."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboard.errors import Rejection
from dashboard.storage.checkpoint_form import CheckpointForm
from dashboard.storage.files import Files
from dashboard.storage.places import Places
from db.models import Checkpoint

log = logging.getLogger("rankzero")
KEEP_S = 3600.0
"""After the last time somebody asked for it."""
SWEEP_EVERY_S = 60.0
MOST_WAITING = 8
LEAST_S = 120
SLOWEST_BYTES_PER_S = 20_000_000
"""A rewrite takes at most so long: a disk that is slower is asked too much of."""


@dataclass(frozen=True)
class Rewritten:
    """A checkpoint in another form, and what a person should know of it."""

    path: Path | None
    """None: that form is the one it was saved in."""
    sha256: str
    size_bytes: int
    notes: Sequence[str]


class Rewrites:
    """One at a time, in order; what was written stays until nobody has asked for it in an hour."""

    def __init__(self, files: Files, places: Places) -> None:
        self._files, self._places = files, places
        self._folder = files.rewritten
        self._running: dict[str, Future[Rewritten]] = {}
        self._program: subprocess.Popen[bytes] | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="rewrites")
        self._lock = threading.Lock()
        self._swept_at = float("-inf")
        self._is_closed = False
        for left in self._folder.glob("*.part"):
            left.unlink(missing_ok=True)

    def wish(self, checkpoint: Checkpoint, form: CheckpointForm) -> Future[Rewritten]:
        """The checkpoint in that form, soon; joined to a wish for the same. Its failure is a Rejection."""
        stem = f"{checkpoint.id}-{checkpoint.sha256[:16]}{''.join(form.options)}"
        with self._lock:
            if (running := self._running.get(stem)) is not None:
                return running
            if (kept := self._kept(stem, checkpoint)) is not None:
                return kept
            if not checkpoint.complete:
                raise Rejection(409, f"Checkpoint {checkpoint.id} has not arrived completely yet.")
            if len(self._running) >= MOST_WAITING or self._is_closed:
                raise Rejection(503, "Too many checkpoints are being rewritten; try again in a minute.")
            future = self._threads.submit(self._rewrite, stem, checkpoint, form)
            self._running[stem] = future
        future.add_done_callback(lambda _: self._running.pop(stem, None))
        return future

    def sweep(self) -> None:
        """Remove what nobody asked for any more; called once a second."""
        if time.monotonic() - self._swept_at < SWEEP_EVERY_S:
            return
        self._swept_at = time.monotonic()
        for answer in self._folder.glob("*.json"):
            try:
                if time.time() - answer.stat().st_mtime > KEEP_S:
                    answer.unlink()
                    answer.with_suffix("").unlink(missing_ok=True)
            except FileNotFoundError:  # deleted with its checkpoint
                pass

    def close(self) -> None:
        """End the program that writes, and take no more wishes."""
        with self._lock:
            self._is_closed = True
            if self._program is not None:
                self._program.kill()
        self._threads.shutdown(cancel_futures=True)

    # -- what is there already -----------------------------------------------------------------

    def _kept(self, stem: str, checkpoint: Checkpoint) -> Future[Rewritten] | None:
        try:
            answer = json.loads(self._answer(stem).read_text())
        except (OSError, ValueError):
            return None
        future: Future[Rewritten] = Future()
        if refused := answer.get("refused"):
            future.set_exception(Rejection(422, refused))
            return future
        found = self._told(stem, checkpoint, answer)
        if found.path is not None and not found.path.exists():
            return None
        os.utime(self._answer(stem))
        future.set_result(found)
        return future

    def _told(self, stem: str, checkpoint: Checkpoint, answer: dict[str, Any]) -> Rewritten:
        if answer.get("unchanged"):
            return Rewritten(None, checkpoint.sha256, checkpoint.size_bytes, answer["notes"])
        return Rewritten(self._folder / stem, answer["sha256"], answer["size_bytes"], answer["notes"])

    def _answer(self, stem: str) -> Path:
        return self._folder / f"{stem}.json"

    # -- writing -------------------------------------------------------------------------------

    def _rewrite(self, stem: str, checkpoint: Checkpoint, form: CheckpointForm) -> Rewritten:
        part = self._folder / f"{stem}.part"
        part.unlink(missing_ok=True)
        seconds = LEAST_S + checkpoint.size_bytes // SLOWEST_BYTES_PER_S
        try:
            with self._places.as_file(checkpoint, self._folder) as source:
                answer = self._run(source, part, form, seconds)
            _require_success(answer, self._files.free_bytes())
            if part.exists():
                part.replace(self._folder / stem)
            elif "sha256" in answer:
                raise Rejection(410, "The checkpoint was deleted meanwhile.")
            self._answer(stem).write_text(json.dumps(answer))
        finally:
            part.unlink(missing_ok=True)
        if refused := answer.get("refused"):
            raise Rejection(422, refused)
        log.info("checkpoint %d rewritten (%s)", checkpoint.id, " ".join(form.options))
        return self._told(stem, checkpoint, answer)

    def _run(self, source: Path, part: Path, form: CheckpointForm, seconds: int) -> dict[str, Any]:
        """What the program says of its work."""
        limits = ["--room", str(max(0, self._files.free_bytes())), "--seconds", str(seconds)]
        argv = [sys.executable, "-P", "-m", "worker.checkpoints.rewrite", str(source), str(part)]
        with self._lock:
            if self._is_closed:
                raise Rejection(503, "The dashboard is ending; ask again when it is back.")
            self._program = subprocess.Popen(
                [*argv, *form.options, *limits],
                stdin=subprocess.PIPE,  # stays open: the program ends when this process does
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")},
            )
        try:
            return _answer_of(self._program, seconds)
        finally:
            with self._lock:
                self._program = None


def _answer_of(program: subprocess.Popen[bytes], seconds: int) -> dict[str, Any]:
    with program:
        assert program.stdout is not None
        timer = threading.Timer(seconds, program.kill)
        timer.start()
        try:
            said = program.stdout.read()  # communicate() would close its standard input
            code = program.wait()
        finally:
            timer.cancel()
    last_words = said.decode(errors="replace").strip().rpartition("\n")[2]
    try:
        answer = json.loads(last_words)
        if isinstance(answer, dict):
            return answer
    except ValueError:
        pass
    log.error("a checkpoint could not be rewritten: exit code %d %s", code, last_words[:500])
    raise Rejection(
        422 if code < 0 else 500,
        f"The checkpoint could not be rewritten within {seconds} s and the memory that is given to it; "
        "download it as it was saved.",
    )


def _require_success(answer: dict[str, Any], free_bytes: int) -> None:
    if answer.get("no_room"):
        raise Rejection(
            507,
            f"The server's disk has {max(0, free_bytes)} bytes free beyond its reserve; the rewritten checkpoint "
            f"needs {answer['size_bytes']}. Free some space there, or download it as it was saved.",
        )
    if failed := answer.get("failed"):
        raise Rejection(507, failed)
