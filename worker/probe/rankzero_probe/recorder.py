"""Writes what was seen: one line of JSON a second, from a thread of its own, into a file of this process."""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

from . import place, samples, seen

EVERY_S = 1.0
LATER_EVERY_S = 5.0
LATER_AFTER_S = 3600.0
"""A run of days would write gigabytes: after an hour the lines come less often."""
STACK_AFTER_S = 2.0
EXIT_WAIT_S = 2.0
MAX_EVENTS = 100

_recorder: Recorder | None = None


def start() -> None:
    """This process is a rank: from now on it is recorded; without effect the second time."""
    global _recorder
    if _recorder is None:
        folder = os.environ.get("RANKZERO_PROBE_DIR")
        if folder:
            _recorder = Recorder(folder)
            _recorder.begin()


class Recorder:
    """Opens its file anew for each line: a script that closes all descriptors cannot make it write elsewhere."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{os.getpid()}.jsonl"
        self._stack_path = f"{folder}/{os.getpid()}.stack"
        self._stack_file: int | None = None
        self._stack_inode = 0
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._stepped_at = 0.0
        self._told_stack: list[list[Any]] = []
        self._identity: dict[str, Any] = {"rank": _number("RANK", 0), "world_size": _number("WORLD_SIZE", 1)}
        self._was_torn = False

    def begin(self) -> None:
        """From the thread that trains."""
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)  # noqa: PTH103, PTH120
            self._answer_to_signal()
            now = seen.current
            now.note("started", python=sys.version.split()[0], torch=_torch_version(), argv=sys.argv[:1])
            threading.Thread(target=self._run, name="rankzero-probe", daemon=True).start()
            atexit.register(self.end)
        except Exception as error:
            seen.current.failed("recorder", error)

    def end(self) -> None:
        """The process ends by itself: its last line."""
        self._ending.set()
        if _recorder is self:
            seen.current.note("exit")
            self._write(is_last=True)

    def _run(self) -> None:
        while True:
            self._write()
            age = time.monotonic() - self._began
            if self._ending.wait(LATER_EVERY_S if age > LATER_AFTER_S else EVERY_S) or _recorder is not self:
                return

    def _write(self, is_last: bool = False) -> None:
        now = seen.current
        if "recorder" in now.off:
            return
        try:
            if self._lock.acquire(timeout=EXIT_WAIT_S):  # a file system that hangs must not keep a script
                try:
                    self._append(json.dumps(self._line(now, is_last), separators=(",", ":")))
                finally:
                    self._lock.release()
        except Exception as error:
            now.failed("recorder", error)
            self._say_that_it_is_off(now)

    def _say_that_it_is_off(self, now: seen.Seen) -> None:
        """The last line: whoever reads them learns why there are no more."""
        events = [event for event in list(now.events) if event["kind"] == "error"]
        line = {"t": round(time.time(), 3), **self._identity, "pid": os.getpid(), "step": now.step}
        try:
            self._append(json.dumps({**line, "in": "", "events": events}, separators=(",", ":")))
        except Exception:  # the training is worth more than our last word
            return

    def _append(self, text: str) -> None:
        """A line that a full disk cut short is closed by the next one that finds room."""
        data = (("\n" if self._was_torn else "") + text + "\n").encode()
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._was_torn = os.write(file, data) != len(data)
            finally:
                os.close(file)
        except OSError:
            self._was_torn = True

    def _line(self, now: seen.Seen, is_last: bool) -> dict[str, Any]:
        line: dict[str, Any] = {"t": round(time.time(), 3), **self._who(), "pid": os.getpid()}
        line["step"] = now.step
        if now.step:
            line["last_step_at"] = round(time.time() - (time.perf_counter() - now.stepped_at), 3)
        line.update(_figures(now))
        line.update(_memory(now))
        line.update(self._doing(now))
        line["stacks"] = self._can_be_asked()
        _tell_epochs(now, is_last)
        if now.events:
            line["events"] = [now.events.popleft() for _ in range(min(MAX_EVENTS, len(now.events)))]
        return line

    def _doing(self, now: seen.Seen) -> dict[str, Any]:
        """What it is at; where it stands only when it has not stepped for a while, and only what is new."""
        stepped, self._stepped_at = now.stepped_at != self._stepped_at, now.stepped_at
        doing, lines = place.look_at(now.thread)
        if doing in ("data", "computing", "waiting", "backward"):
            if now.step and now.loader is not None and not now.loader.steps:
                doing = "validating"
            elif stepped:
                doing = "stepping"
            elif not now.step and doing == "computing":
                doing = "starting"
        if stepped or time.perf_counter() - now.stepped_at < STACK_AFTER_S:
            self._told_stack = []
        elif lines != self._told_stack:
            self._told_stack = lines
            return {"in": doing, "stack": lines}
        return {"in": doing}

    def _who(self) -> dict[str, Any]:
        """As torch.distributed has it; before and after that as the launcher said."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            self._identity = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
        return {**self._identity, "local_rank": _number("LOCAL_RANK", self._identity["rank"])}

    def _answer_to_signal(self) -> None:
        """faulthandler writes the stack without Python's help, also where Python is stuck."""
        if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._stack_file = os.open(self._stack_path, flags, 0o600)
            self._stack_inode = os.fstat(self._stack_file).st_ino
            faulthandler.register(signal.SIGUSR2, file=self._stack_file, all_threads=False, chain=False)

    def _can_be_asked(self) -> bool:
        """Not when the script has taken the signal, or closed the file and given its number to another."""
        if self._stack_file is None:
            return False
        try:
            is_ours = os.fstat(self._stack_file).st_ino == self._stack_inode
        except OSError:
            is_ours = False
        if is_ours and signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            return True
        self._stack_file = None
        if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            faulthandler.unregister(signal.SIGUSR2)
        return False


def _figures(now: seen.Seen) -> dict[str, Any]:
    """Of the steps since the last line; nothing when there were none."""
    intervals = _drain(now.intervals_s)
    waits, counts = _drain(now.waits_s), _drain(now.samples)
    if not intervals:
        return {}
    total_s = sum(intervals)
    figures = {
        "steps_per_s": len(intervals) / total_s if total_s else None,
        "step_time_s": sorted(intervals)[len(intervals) // 2],
        "data_wait_s": sum(waits) / len(waits) if waits else None,
        "samples_per_s": sum(counts) / total_s if counts and total_s else None,
    }
    return {name: float(f"{value:.6g}") for name, value in figures.items() if value is not None}


def _drain(values: Any) -> list[Any]:
    return [values.popleft() for _ in range(len(values))]


def _tell_epochs(now: seen.Seen, is_last: bool) -> None:
    """An epoch is told once, when steps have followed from it and its beginning is known."""
    waiting = _drain_list(now.epochs)
    for loader in list(now.loaders.values()):
        epoch = loader.epoch
        if epoch is not None and epoch.steps and (epoch.is_full or is_last):
            waiting.append(epoch)
    for epoch in waiting:
        if not epoch.is_told:
            epoch.is_told = True
            now.note(
                "epoch",
                step=epoch.first_step,
                dataset_length=epoch.loader.dataset_length,
                batch_size=epoch.loader.batch_size,
                digests=samples.digest_indices([each for each in epoch.indices if each is not None]),
                fields=epoch.fields,
                sampler=epoch.sampler,
            )


def _drain_list(values: list[Any]) -> list[Any]:
    return [values.pop(0) for _ in range(len(values))]


def _memory(now: seen.Seen) -> dict[str, int]:
    if "memory" in now.off:
        return {}
    try:
        return {"peak_memory_bytes": _peak_memory_bytes()}
    except Exception as error:
        now.failed("memory", error)
        return {}


def _peak_memory_bytes() -> int:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return max(int(cuda.max_memory_allocated(device)) for device in range(cuda.device_count()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _torch_version() -> str | None:
    version = getattr(sys.modules.get("torch"), "__version__", None)
    return None if version is None else str(version)


def _number(variable: str, default: int) -> int:
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return default


def _forget() -> None:
    """In a forked child there is no thread; what it does later may make it a rank of its own."""
    global _recorder
    _recorder = None


os.register_at_fork(after_in_child=_forget)
