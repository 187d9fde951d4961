"""A script without the guard runs again in the processes that it starts: the probe notes it. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.worker.probe.watched import TORCHRUN, Watched
from worker.diagnosis.causes.reruns import JOINS, TRAINS, Rerun
from worker.monitor.reruns import read_rerun

pytestmark = pytest.mark.real

LIMIT_S = 300.0
REFUSED = "RuntimeError: An attempt has been made to start a new process"
METHODS = ["spawn", "forkserver"]
STARTS = {
    "Process": "q = context.Queue(); p = context.Process(target=work, args=(q,)); p.start(); q.get()",
    "Pool": "context.Pool(2).map(work, [None])",
    "Manager": "context.Manager()",
    "ProcessPoolExecutor": "ProcessPoolExecutor(1, mp_context=context).submit(work, None).result()",
}
BEGINNING = """
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

def work(queue):
    if queue is not None:
        queue.put(1)

context = multiprocessing.get_context(sys.argv[1])
"""
"""What a test adds begins with line 12."""


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def noted(watched: Watched, argv: list[str]) -> Rerun:
    """Start a script, wait until the probe has noted that it runs again, and end it with all it started."""
    process = watched.start(argv, start_new_session=True)
    try:
        deadline = time.monotonic() + LIMIT_S
        while (rerun := read_rerun(watched.records)) is None:
            assert time.monotonic() < deadline, "nothing was noted"
            time.sleep(0.05)
        return rerun
    finally:
        end(process)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("start", STARTS)
def test_a_script_without_the_guard_is_noted_with_its_line(watched: Watched, method: str, start: str):
    script = watched.script(f"{BEGINNING}\n{STARTS[start]}\n")
    rerun = noted(watched, [sys.executable, script, method])
    assert (rerun.file, rerun.line, rerun.has_guard, rerun.is_certain) == (script, 12, False, True)
    assert rerun.sign.startswith(REFUSED)


def test_a_main_function_that_is_called_without_the_guard(watched: Watched):
    body = STARTS["Process"].replace("; ", "\n    ")
    script = watched.script(f"{BEGINNING}\ndef main():\n    {body}\n\nmain()\n")
    assert noted(watched, [sys.executable, script, "spawn"]).line == 18


def test_the_start_method_that_is_set_above_the_guard(watched: Watched):
    body = STARTS["Process"].replace("; ", "\n    ")
    text = f"{BEGINNING}\nmultiprocessing.set_start_method('spawn')\nif __name__ == '__main__':\n    {body}\n"
    rerun = noted(watched, [sys.executable, watched.script(text), "spawn"])
    assert (rerun.line, rerun.has_guard, rerun.is_certain) == (12, True, True)
    assert "context has already been set" in rerun.sign


def test_a_module_is_noted_like_a_script(watched: Watched):
    script = watched.script(f"{BEGINNING}\n{STARTS['Process']}\n")
    assert noted(watched, [sys.executable, "-m", "train", "spawn"]).file == script


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_noted_with_the_guard(watched: Watched, method: str):
    body = "\n    ".join(STARTS[start].replace("; ", "\n    ") for start in ("Process", "Manager"))
    watched.run([sys.executable, watched.script(f"{BEGINNING}\nif __name__ == '__main__':\n    {body}\n"), method])
    assert list(watched.records.glob("rerun-*")) == []


GUARDS = (
    "if __name__ == '__main__':\n    main()",
    "if '__main__' == __name__: main()",
    "if __name__ in ('__main__', 'train'):\n    main()",
    "if not __name__ == '__main__':\n    pass\nelse:\n    main()",
    "if __name__ != '__mp_main__':\n    main()",
    "try:\n    if __name__ == '__main__':\n        main()\nfinally:\n    pass",
    "__name__ == '__main__' and main()",
    "match __name__:\n    case '__main__':\n        main()",
)


@pytest.mark.parametrize("guard", GUARDS)
def test_an_import_that_fails_in_the_process_alone_is_not_blamed_on_the_guard(watched: Watched, guard: str):
    body = STARTS["Process"].replace("; ", "\n    ").replace("q.get()", "p.join()")
    fails = "if multiprocessing.current_process().name != 'MainProcess':\n    import no_such"
    watched.run([sys.executable, watched.script(f"{BEGINNING}\n{fails}\ndef main():\n    {body}\n{guard}\n"), "spawn"])
    assert [path.name for path in watched.records.glob("rerun-*")] == ["rerun-0.json"]
    assert read_rerun(watched.records) is None


def test_a_guard_in_a_comment_is_none(watched: Watched):
    script = watched.script(f"{BEGINNING}\n{STARTS['Process']}  # if __name__ == '__main__':\n")
    assert not noted(watched, [sys.executable, script, "spawn"]).has_guard


def test_a_module_that_starts_processes_when_it_is_imported_is_named_itself(watched: Watched):
    guarded = "import lib\n\nif __name__ == '__main__':\n    print(lib.work)\n"
    script = watched.script(guarded)
    lib = Path(script).with_name("lib.py")
    lib.write_text(f"{BEGINNING}\n{STARTS['Process']}\n".lstrip())
    rerun = noted(watched, [sys.executable, script, "spawn"])
    assert (rerun.file, rerun.line, rerun.imported, rerun.is_certain) == (script, 1, (str(lib), 11), True)


@pytest.mark.training
def test_a_rank_stays_the_process_that_torchrun_started(watched: Watched):
    text = """
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(64, 4))
    for _ in DataLoader(data, num_workers=1, multiprocessing_context="spawn"):
        pass
    """
    rerun = noted(watched, [*TORCHRUN, "--nproc-per-node=2", watched.script(text)])  # it fails or hangs, as it likes
    assert (rerun.line, rerun.sign) == (6, JOINS)
    assert len(list(watched.records.glob("*.jsonl"))) == 2


@pytest.mark.training
def test_one_that_trains_again_is_noted(watched: Watched):
    text = """
    import multiprocessing
    import torch

    def work(queue):
        queue.put(1)

    parameter = torch.nn.Parameter(torch.zeros(1))
    torch.optim.SGD([parameter]).step()
    queue = multiprocessing.get_context("spawn").Queue()
    multiprocessing.get_context("spawn").Process(target=work, args=(queue,)).start()
    queue.get()
    """
    rerun = noted(watched, [sys.executable, watched.script(text)])
    assert (rerun.line, rerun.sign) == (9, TRAINS)


def end(process: subprocess.Popen[str]) -> None:
    """End the script's session, and what torchrun started in sessions of their own."""
    started = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    for child in started:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.communicate()
