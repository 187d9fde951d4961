"""Record torch's profiler over the steps that the worker requests, the same in each chosen rank.

The recorder reads the request, the optimizer's hook starts and stops the profiler, and a thread writes the trace.
A script's own profiler always wins: ours stays off while it is open, and gives up where one is opened."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import threading
import time
from typing import Any

from . import named_as_probe, process_state

REQUEST_FILE = "profile.json"
MAX_TRACE_BYTES = 1 << 30
EXIT_WAIT_S = 20.0
LOG_LEVEL = "KINETO_LOG_LEVEL"
_current: Profile | None = None
_read_at = 0
"""Modification time of the request that was read last."""


class Profile:
    """One requested profile in this rank."""

    def __init__(self, request: dict[str, Any], rank: int) -> None:
        self.rank, self.folder = rank, str(request["folder"])
        self.first, self.steps, self.until = request["first_step"], request["steps"], request["until"]
        self.profiler: Any = None
        self.step_s_before: float | None = None
        self.is_over = False
        self._writer: threading.Thread | None = None
        self._lock = threading.Lock()

    def advance(self, state: process_state.ProcessState) -> None:
        """Start the profiler one step early, begin to record, or stop, after a step of the training's thread."""
        if self.is_over:
            return
        if self.profiler is None:
            self._start()
        elif state.step < self.first - 1 + self.steps:
            self.profiler.step()
        else:
            self._stop()
        state.profile_at = -1 if self.is_over or self._writer is not None else state.step + 1

    def check(self, step: int) -> None:
        """Give up where the first step has passed or did not come in time."""
        if self.profiler is None and not self.is_over:
            if step > self.first - 2:
                self.fail(f"the rank was already past step {self.first} when the request came; ask again")
            elif time.time() > self.until:
                self.fail(f"it was at step {step} and did not reach step {self.first} in time", "timed out")

    def give_up(self, why: str) -> None:
        """Stop recording without a trace."""
        profiler, self.profiler = self.profiler, None
        if profiler is not None and not self.is_over and self._writer is None:
            self.fail(why)
            profiler.stop()

    def fail(self, why: str, state: str = "failed") -> None:
        """Leave the reason why there is no trace."""
        self._leave({"state": state, "why": why})

    def finish(self) -> None:
        """Wait for the trace at the end of the process; a recording that is not complete is given up."""
        if self._writer is not None:
            self._writer.join(EXIT_WAIT_S)
        elif self.profiler is not None:
            self.give_up("the run ended before all steps were recorded")

    def _start(self) -> None:
        if _other_profiler():
            self.fail("the script has a profiler of its own open, which would be disturbed")
            return
        os.environ.setdefault(LOG_LEVEL, "99")  # kineto writes to the script's stderr otherwise
        torch: Any = sys.modules["torch"]
        kinds = torch.profiler.ProfilerActivity
        self.profiler = torch.profiler.profile(
            activities=[kinds.CPU, *([kinds.CUDA] if torch.cuda.is_initialized() else [])],
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=self.steps, repeat=1),
            with_stack=sys.getprofile() is None,
        )
        self.profiler.start()
        if self.is_over:  # timed out just now
            self.profiler.stop()

    def _stop(self) -> None:
        self.profiler.stop()
        self._writer = threading.Thread(target=self._write, name="rankzero-profile", daemon=True)
        self._writer.start()

    def _write(self) -> None:
        try:
            raw, packed = f"{self._path('trace')}.json", f"{self._path('trace')}.json.gz"
            self._export(raw, f"{packed}.tmp")
            os.replace(f"{packed}.tmp", packed)  # noqa: PTH105
            self._leave({"state": "recorded", "size_bytes": os.path.getsize(packed)})  # noqa: PTH202
        except Exception as error:
            self.fail(f"the trace could not be written: {type(error).__name__}: {error}"[:300])

    def _export(self, raw: str, packed: str) -> None:
        """Write the trace, packed, for this user only. Raises ValueError where it is too large."""
        os.close(os.open(raw, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            self.profiler.export_chrome_trace(raw)
            if os.path.getsize(raw) > MAX_TRACE_BYTES:  # noqa: PTH202
                raise ValueError("it is larger than 1 GB; record fewer steps")
            descriptor = os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with (
                open(raw, "rb") as source,  # noqa: PTH123
                os.fdopen(descriptor, "wb") as file,
                gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3, filename="", mtime=0) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
        finally:
            os.unlink(raw)  # noqa: PTH108

    def _leave(self, report: dict[str, Any]) -> None:
        """Write the report, once: the worker reads it."""
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
        path = f"{self._path('rank')}.json"
        descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({**report, "step_s_before": self.step_s_before}, file)
        os.replace(f"{path}.tmp", path)  # noqa: PTH105

    def _path(self, kind: str) -> str:
        return f"{self.folder}/{kind}{self.rank}"


def look(folder: str, rank: int, state: process_state.ProcessState, median_step_s: float | None) -> None:
    """Read a new request, or see whether the current one is too late. Called by the recorder's thread."""
    global _current, _read_at
    if "profile" in state.off:
        return
    try:
        path = f"{folder}/{REQUEST_FILE}"
        changed_at = os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return
    try:
        if changed_at != _read_at:
            _read_at = changed_at
            _take(path, rank, state, median_step_s)
        elif _current is not None:
            _current.check(state.step)
    except Exception as error:
        state.failed("profile", error)


def advance(state: process_state.ProcessState) -> None:
    """Start, continue or stop after a step, called where `state.profile_at` says so."""
    profile = _current
    try:
        if profile is not None:
            profile.advance(state)
    except Exception as error:
        state.profile_at = -1
        state.failed("profile", error)
        if profile is not None:
            profile.fail(f"the profiler failed: {type(error).__name__}: {error}"[:300])


def end() -> None:
    """Finish at the end of the process."""
    try:
        if _current is not None:
            _current.finish()
    except Exception as error:
        process_state.current.failed("profile", error)


def hook_into_profiler(module: Any) -> None:
    """Give ours up when the script opens a profiler: torch allows one at a time."""
    prepare, leave = module.profile._prepare_trace, module.profile.__exit__

    def _prepare_trace(self: Any) -> Any:
        profile = _current
        if not _is_ours(self, profile):
            process_state.current.profilers.add(self)
            if profile is not None:
                try:
                    profile.give_up("the script opened a profiler of its own meanwhile")
                except Exception as error:
                    process_state.current.failed("profile", error)
        return prepare(self)

    def __exit__(self: Any, *args: Any) -> Any:
        process_state.current.profilers.discard(self)
        return leave(self, *args)

    module.profile._prepare_trace = named_as_probe(_prepare_trace)
    module.profile.__exit__ = named_as_probe(__exit__)


def _take(path: str, rank: int, state: process_state.ProcessState, median_step_s: float | None) -> None:
    global _current
    with open(path) as file:  # noqa: PTH123
        request = json.load(file)
    if rank not in request["ranks"] or os.path.exists(f"{request['folder']}/rank{rank}.json"):  # noqa: PTH110
        return
    os.makedirs(request["folder"], mode=0o700, exist_ok=True)  # noqa: PTH103
    profile = Profile(request, rank)
    if _current is not None and not _current.is_over:
        profile.fail("an earlier profile has not ended")
        return
    _current, profile.step_s_before = profile, median_step_s
    step = state.step
    state.profile_at = _current.first - 2
    _current.check(step + 1)


def _other_profiler() -> bool:
    enabled = getattr(sys.modules["torch"].autograd, "_profiler_enabled", None)  # type: ignore[attr-defined, unused-ignore]
    return bool(process_state.current.profilers) or bool(enabled and enabled())


def _is_ours(profiler: Any, profile: Profile | None) -> bool:
    return profile is not None and getattr(profile.profiler, "profiler", None) is profiler


def forget() -> None:
    """Have no profile: in a forked child, and where a process that watched itself goes on."""
    global _current
    _current = None


os.register_at_fork(after_in_child=forget)
