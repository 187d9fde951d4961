"""Record this process: one line of JSON a second, from a thread of its own, into a file per process."""

from __future__ import annotations

import atexit
import faulthandler
import functools
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from . import activity, collectives, named_as_probe, peers, phases, process_state, profiling, reruns, samples

EVERY_S = 1.0
LATER_EVERY_S = 5.0
LATER_AFTER_S = 3600.0
"""After this time lines are written less often: a run of days would write gigabytes."""
STACK_AFTER_S = 2.0
EXIT_WAIT_S = 2.0
MAX_EVENTS = 100


class Recorder:
    """Reopens its file for each line: a script that closes all descriptors cannot make it write elsewhere."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{os.getpid()}.jsonl"
        self._stack_path = f"{folder}/{os.getpid()}.stack"
        self._stack_file: int | None = None
        self._stack_inode = 0
        self._records_aborts = False
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._stepped_at = 0.0
        self._reported_stack: list[list[Any]] = []
        self._identity: dict[str, Any] = {"rank": _number("RANK", 0), "world_size": _number("WORLD_SIZE", 1)}
        self._step_s: float | None = None
        self._was_torn = False
        self._phases = phases.PhaseRecord()

    def begin(self) -> None:
        """Start the recorder's thread. Called by the thread that trains."""
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)  # noqa: PTH103, PTH120
            self._answer_to_signal()
            if threading.current_thread() is threading.main_thread():
                hook_into_signals()
            state = process_state.current
            state.note("started", python=sys.version.split()[0], torch=_torch_version(), argv=sys.argv[:1])
            collectives.serve()
            threading.Thread(target=self._run, name="rankzero-probe", daemon=True).start()
            atexit.register(self.end)
        except Exception as error:
            process_state.current.failed("recorder", error)

    def end(self) -> None:
        """Write the last line, once: when the process exits normally, or is no longer watched."""
        if self._ending.is_set():
            return
        self._ending.set()
        if _recorder is self:
            profiling.end()
            collectives.end()
            process_state.current.note("exit")
            self._write(is_last=True)
            if process_state.is_in_process_group():
                collectives.wait_for_threads()

    def _run(self) -> None:
        while True:
            self._write()
            age = time.monotonic() - self._began
            if self._wait(LATER_EVERY_S if age > LATER_AFTER_S else EVERY_S):
                return

    def _wait(self, seconds: float) -> bool:
        """Wait for the next line and look for requests each second; True at the end."""
        for _ in range(round(seconds / EVERY_S)):
            if self._ending.wait(EVERY_S) or _recorder is not self:
                return True
            folder = os.path.dirname(self._path)  # noqa: PTH120
            profiling.look(folder, self._identity["rank"], process_state.current, self._step_s)
        return False

    def _write(self, is_last: bool = False) -> None:
        state = process_state.current
        if "recorder" in state.off:
            return
        try:
            # A hanging file system must not block the script's exit.
            if self._lock.acquire(timeout=EXIT_WAIT_S):
                try:
                    self._append(json.dumps(self._line(state, is_last), separators=(",", ":")))
                finally:
                    self._lock.release()
        except Exception as error:
            state.failed("recorder", error)
            self._report_off(state)

    def _report_off(self, state: process_state.ProcessState) -> None:
        """Write a last line that says why no more lines follow."""
        events = [event for event in list(state.events) if event["kind"] == "error"]
        line = {"t": round(time.time(), 3), **self._identity, "pid": os.getpid(), "step": state.step}
        try:
            self._append(json.dumps({**line, "in": "", "events": events}, separators=(",", ":")))
        except Exception:  # never disturb the training
            return

    def _append(self, text: str) -> None:
        """Append a line; one that a full disk cut short is terminated before the next."""
        data = (("\n" if self._was_torn else "") + text + "\n").encode()
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._was_torn = os.write(file, data) != len(data)
            finally:
                os.close(file)
        except OSError:
            self._was_torn = True

    def _line(self, state: process_state.ProcessState, is_last: bool) -> dict[str, Any]:
        line: dict[str, Any] = {"t": round(time.time(), 3), **self._rank_identity(), "pid": os.getpid()}
        line["step"] = state.step
        if state.step:
            line["last_step_at"] = round(time.time() - (time.perf_counter() - state.stepped_at), 3)
        figures = _figures(state)
        self._step_s = figures.get("step_time_s", self._step_s)
        line.update(figures)
        line.update(_memory(state))
        line.update(self._phases.figures(state, line["world_size"], is_last))
        line.update(self._activity(state))
        line["stacks"] = self._can_be_asked()
        _report_epochs(state, is_last)
        collectives.report_groups()
        if state.events:
            line["events"] = [state.events.popleft() for _ in range(min(MAX_EVENTS, len(state.events)))]
        return line

    def _activity(self, state: process_state.ProcessState) -> dict[str, Any]:
        """Return the activity, and the stack if the process has not stepped for a while and the stack is new."""
        has_stepped, self._stepped_at = state.stepped_at != self._stepped_at, state.stepped_at
        current, lines = activity.thread_activity(state.thread)
        if current in ("data", "computing", "waiting", "backward"):
            if state.step and state.loader is not None and not state.loader.steps:
                current = "validating"
            elif has_stepped:
                current = "stepping"
            elif not state.step and current == "computing":
                current = "starting"
        if has_stepped or time.perf_counter() - state.stepped_at < STACK_AFTER_S:
            self._reported_stack = []
        elif lines != self._reported_stack:
            self._reported_stack = lines
            return {"in": current, "stack": lines}
        return {"in": current}

    def _rank_identity(self) -> dict[str, Any]:
        """Return rank and world size from torch.distributed, or from the launcher while it is not initialised."""
        if process_state.is_in_process_group():
            distributed: Any = sys.modules["torch.distributed"]
            self._identity = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
        return {**self._identity, "local_rank": _number("LOCAL_RANK", self._identity["rank"])}

    def _answer_to_signal(self) -> None:
        """Let faulthandler write the stack on a signal, even if Python is stuck."""
        if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._stack_file = os.open(self._stack_path, flags, 0o600)
            self._stack_inode = os.fstat(self._stack_file).st_ino
            self._records_aborts = not faulthandler.is_enabled()
            if self._records_aborts:  # gloo aborts a rank whose peers send another size
                if os.environ.get("WORLD_SIZE") != "1" and signal.getsignal(signal.SIGABRT) is signal.SIG_DFL:
                    peers.wait_in_abort()  # the fault handler, which comes first, calls it
                faulthandler.enable(file=self._stack_file)
            faulthandler.register(signal.SIGUSR2, file=self._stack_file, all_threads=False, chain=False)

    def _can_be_asked(self) -> bool:
        """Whether the signal still writes the stack: the script may use the signal, or may have closed the file."""
        if self._stack_file is None:
            return False
        try:
            is_ours = os.fstat(self._stack_file).st_ino == self._stack_inode
        except OSError:
            is_ours = False
        if is_ours and signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            return True
        self._stack_file = None
        if not is_ours and self._records_aborts:
            faulthandler.disable()
        if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            faulthandler.unregister(signal.SIGUSR2)
        return False

    def give_signal_back(self) -> None:
        """Undo what lets the stack be asked for, where it is still ours."""
        if self._stack_file is not None and self._can_be_asked():
            faulthandler.unregister(signal.SIGUSR2)
            if self._records_aborts:
                faulthandler.disable()
            os.close(self._stack_file)
            self._stack_file = None


_recorder: Recorder | None = None


def start() -> None:
    """Start recording this process as a rank; further calls have no effect. One that reruns the script is no rank."""
    global _recorder
    if _recorder is None:
        folder = os.environ.get("RANKZERO_PROBE_DIR")
        if folder and not reruns.is_rerun(reruns.TRAINS):
            _recorder = Recorder(folder)
            _recorder.begin()


def stop() -> None:
    """End the record of a process that goes on, and give its signal back."""
    global _recorder
    if _recorder is not None:
        _recorder.end()
        _recorder.give_signal_back()
        atexit.unregister(_recorder.end)
        _recorder = None


def _figures(state: process_state.ProcessState) -> dict[str, Any]:
    """Return the figures of the steps since the last line; empty if there were none."""
    steps = [state.steps.popleft() for _ in range(len(state.steps))]
    if not steps:
        return {}
    intervals, all_waits, all_counts, tokens = zip(*steps)  # noqa: B905 - Python 3.9
    waits, counts = ([value for value in values if value is not None] for values in (all_waits, all_counts))
    total_s = sum(intervals)
    figures = {
        "steps_per_s": len(intervals) / total_s if total_s else None,
        "step_time_s": sorted(intervals)[len(intervals) // 2],
        "data_wait_s": sum(waits) / len(waits) if waits else None,
        "samples_per_s": sum(counts) / total_s if counts and total_s else None,
        "tokens_per_s": sum(tokens) / total_s if any(tokens) and total_s else None,
    }
    return {name: float(f"{value:.6g}") for name, value in figures.items() if value is not None}


def _report_epochs(state: process_state.ProcessState, is_last: bool) -> None:
    """Report each epoch once, when steps have followed it and its first indices are known."""
    waiting = _drain_list(state.epochs)
    for loader in list(state.loaders.values()):
        epoch = loader.epoch
        if epoch is not None and epoch.steps and (epoch.is_full or is_last):
            waiting.append(epoch)
    for epoch in waiting:
        if not epoch.is_reported:
            epoch.is_reported = True
            state.note(
                "epoch",
                step=epoch.first_step,
                dataset_length=epoch.loader.dataset_length,
                batch_size=epoch.loader.batch_size,
                digests=samples.digest_indices([index for index in epoch.indices if index is not None]),
                fields=epoch.fields,
                sampler=epoch.sampler,
            )


def _drain_list(values: list[Any]) -> list[Any]:
    return [values.pop(0) for _ in range(len(values))]


def _memory(state: process_state.ProcessState) -> dict[str, int]:
    if "memory" in state.off:
        return {}
    try:
        state.is_memory_due = True
        return {"peak_memory_bytes": _peak_memory_bytes(), **state.device_memory}
    except Exception as error:
        state.failed("memory", error)
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
    """Reset in a forked child, which has no recorder thread and may become a rank of its own."""
    global _recorder
    _recorder = None


os.register_at_fork(after_in_child=_forget)

# Note when the script is told to end by SIGTERM and handles it: a clean exit after that is no success.

EVENT = "terminated"


def hook_into_signals() -> None:
    """Note SIGTERM ahead of the script's own handler, be it installed before or after this."""
    if getattr(signal.signal, "_rankzero", False):
        return
    install, get = signal.signal, signal.getsignal

    @functools.wraps(install)
    def signal_(number: Any, handler: Any) -> Any:
        previous = install(number, _noting(handler) if _is_ours_to_note(number, handler) else handler)
        return getattr(previous, "_rankzero_handler", previous)

    @functools.wraps(get)
    def getsignal(number: Any) -> Any:
        handler = get(number)
        return getattr(handler, "_rankzero_handler", handler)

    signal_._rankzero = True  # type: ignore[attr-defined]
    signal.signal, signal.getsignal = named_as_probe(signal_), named_as_probe(getsignal)
    handler = get(signal.SIGTERM)
    if callable(handler) and not isinstance(handler, signal.Handlers):
        install(signal.SIGTERM, _noting(handler))


def _is_ours_to_note(number: Any, handler: Any) -> bool:
    return number == signal.SIGTERM and callable(handler) and not isinstance(handler, signal.Handlers)


def _noting(handler: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(handler, "_rankzero_handler"):
        return handler

    def noting(number: int, frame: Any) -> Any:
        process_state.current.note(EVENT, step=process_state.current.step)
        return handler(number, frame)

    noting._rankzero_handler = handler  # type: ignore[attr-defined]
    return named_as_probe(noting)  # type: ignore[no-any-return]
