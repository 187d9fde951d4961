"""Writes down all that a rank can see of how it was started, then trains a few steps, and ends as it is told."""

import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import threading
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
FRESH = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "RANKZERO_PROBE_RANK")


MAIN = [name for name in globals() if name.startswith("__") and name != "__builtins__"]


def is_lasting(entry):
    """Whether a variable is as it was when the process began."""
    return entry.partition("=")[0] not in FRESH and "_FR_" not in entry


def stream(file):
    names = ("encoding", "errors", "line_buffering", "write_through", "name", "mode")
    return {name: str(getattr(file, name, None)) for name in names} | {"tty": file.isatty()}


def open_files():
    """The open files, without the numbers of processes and sockets."""
    links = Path("/proc/self/fd").iterdir()
    own = [link for link in links if int(link.name) > 2 and link.is_symlink()]
    return sorted(re.sub(r"\d+", "N", link.readlink().name) for link in own)


seen = {
    "open files": open_files(),
    "signal handlers": {str(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
    "signal mask": [str(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "threads": [thread.name for thread in threading.enumerate()],
    "main thread": threading.current_thread() is threading.main_thread(),
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": repr(sys.flags),
    "executable": sys.executable, "xoptions": sys._xoptions, "warnoptions": sys.warnoptions,
    "recursion": sys.getrecursionlimit(), "dont_write_bytecode": sys.dont_write_bytecode,
    "environ": {name: value for name, value in os.environ.items() if name not in FRESH},
    "shown environ": sorted(filter(is_lasting, Path("/proc/self/environ").read_text().split("\0"))),
    "shown command": Path("/proc/self/cmdline").read_text().split("\0"),
    "main": {name: str(globals()[name]).partition(" at 0x")[0] for name in MAIN},
    "names": sorted(name for name in globals() if name.startswith("__")),
    "is main": sys.modules["__main__"].__dict__ is globals() and sys.modules["__mp_main__"].__dict__ is globals(),
    "cwd": str(Path.cwd()), "nice": os.nice(0),
    "umask": Path("/proc/self/status").read_text().partition("Umask:")[2][:6],
    "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT" in name],
    "cores": sorted(os.sched_getaffinity(0)), "session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "faulthandler": faulthandler.is_enabled(), "locale": [locale.getlocale(), locale.getpreferredencoding()],
    "streams": [stream(file) for file in (sys.stdin, sys.stdout, sys.stderr)],
    "hooks": [sys.excepthook.__qualname__, str(sys.gettrace()), str(sys.displayhook)],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "logging": [logging.root.level, len(logging.root.handlers)],
    "multiprocessing": [multiprocessing.get_start_method(), multiprocessing.current_process().name],
    "torch": [
        torch.get_num_threads(), torch.get_default_dtype() == torch.float32,
        torch.cuda.is_initialized(), torch.is_grad_enabled(), str(torch.get_default_device()),
    ],
    "own": [sorted(name for name in sys.modules if name.startswith("rankzero_warm")), "sitecustomize" in sys.modules],
    "probe": "rankzero_probe" in sys.modules,
}  # fmt: skip
import numpy  # noqa: E402

drawn = [
    torch.initial_seed(),
    torch.rand(1).item(),
    random.random(),
    numpy.random.rand(),
    multiprocessing.current_process().authkey.hex(),
]
dist.init_process_group("gloo")
torch.manual_seed(RANK)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
)
optimizer = torch.optim.Adam(model.parameters())
losses = []
for _ in range(8):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
seen["warnings"] = sorted({str(entry) for entry in warnings.filters})
unclosed = open(f"unclosed{RANK}", "w")  # noqa: SIM115, PTH123 - written when Python ends
unclosed.write("all")
Path(f"seen{RANK}.json").write_text(json.dumps({"seen": seen, "losses": losses, "drawn": drawn}, default=str))
if "stay" in sys.argv or (RANK == 0 and {"raise", "exit"} & {*sys.argv}):
    Path(f"ready{RANK}").touch()
    threading.Event().wait()
if "raise" in sys.argv:
    raise ValueError("bad labels")
if "exit" in sys.argv:
    sys.exit(7)
