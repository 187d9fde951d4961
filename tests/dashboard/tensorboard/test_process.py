"""TensorBoard of a run: its links, its passes, its processes; and a real one behind the dashboard's login."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from dashboard.service.service import Service
from dashboard.settings import Settings
from dashboard.tensorboard import board_server
from dashboard.tensorboard.process import NothingToShow, StillStarting, TensorBoardFailed, TensorBoards
from db.attempts import attempt_queries
from db.tasks import task_reports
from tests.dashboard.event_files import write_events
from tests.dashboard.running import running
from tests.dashboard.seeded_store import Seed
from tests.dashboard.tensorboard.event_files import EVENT
from tests.dashboard.tensorboard.opened_pages import bring, opened
from tests.db import task_streams
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

ANSWERS = """
import os, socket, sys, time
os.chdir(sys.argv[1])
listening = socket.socket(socket.AF_UNIX)
listening.bind("socket")
listening.listen()
time.sleep(600)
"""


class Boards:
    """Those of a store with some runs, whose TensorBoard is another program."""

    def __init__(self, data: Path, program: str = ANSWERS, **options) -> None:
        self.service = Service.open(Settings(data=data))
        self.seed = Seed(self.service.store, self.service.clock())
        self.seed.node("n", 8, kind="cpu")
        self.folder = data / "tensorboard"
        self.now = 0.0
        self.processes: list[subprocess.Popen[bytes]] = []

        def start(folder: Path, title: str) -> subprocess.Popen[bytes]:
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=log, stderr=log)
            self.processes.append(process)
            return process

        self.boards = TensorBoards(
            self.service.store, self.service.files, self.folder, start=start, now=lambda: self.now, **options
        )

    def run(self, label: str, events: bool = True) -> str:
        """A run, with an event file or without."""
        run_id = self.seed.launch(label, 10, gpus_per_node=1)
        if events:
            self.add_file(label, f"work/{EVENT}")
        return run_id

    def add_file(self, label: str, path: str) -> None:
        """As a worker would bring it."""
        store, fence = (
            self.service.store,
            attempt_queries.attempts(self.service.store, self.seed.runs[label])[-1].fence,
        )
        file_id, _ = task_streams.file_for_append(store, self.seed.node_ids["n"], fence, 0, path, 0)
        self.service.files.append(file_id, 0, b"events")
        task_reports.file_grew(store, file_id, 0, 6)

    async def open(self, run_id: str, wait_s: float = 300.0) -> httpx2.AsyncClient:
        """As the page does."""
        return await self.boards.reach(self.service.run(run_id), wait_s)

    def while_kept(self, what: Callable[[], Awaitable[None]]) -> None:
        """Run it as the dashboard would."""

        async def kept() -> None:
            async with self.boards.running():
                await what()

        try:
            asyncio.run(kept())
        finally:
            self.service.close()
        assert [p.poll() is None for p in self.processes] == [False] * len(self.processes)
        assert not self.folder.exists()


def test_one_is_started_when_it_is_opened_and_serves_until_nobody_looks(tmp_path: Path) -> None:
    it = Boards(tmp_path, idle_s=100)
    first = it.run("first")

    async def story() -> None:
        assert it.processes == []
        http = await it.open(first)
        assert http is await it.open(first)
        (process,) = it.processes
        it.add_file("first", f"work/later/{EVENT}")
        it.now = 90
        await it.boards.refresh()
        shown = {p.name: p for p in it.folder.rglob("*") if p.is_symlink() or p.is_dir()}
        assert {EVENT, "later", "attempt 1"} <= shown.keys()
        assert process.poll() is None
        assert (it.folder.stat().st_mode & 0o777, next(it.folder.iterdir()).stat().st_mode & 0o777) == (
            0o700,
            0o700,
        )
        it.now = 101
        await it.boards.refresh()
        assert process.poll() is not None
        assert list(it.folder.iterdir()) == []
        await it.open(first)
        assert len(it.processes) == 2

    it.while_kept(story)


def test_the_one_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    it = Boards(tmp_path, most_at_once=2)
    runs = [it.run(label) for label in "abc"]

    async def story() -> None:
        for it.now, run in enumerate([runs[0], runs[1], runs[0], runs[2]]):
            await it.open(run)
        assert [p.poll() is None for p in it.processes] == [True, False, True]

    it.while_kept(story)


def test_one_that_died_is_started_again(tmp_path: Path) -> None:
    it = Boards(tmp_path)
    run = it.run("a")

    async def story() -> None:
        await it.open(run)
        it.processes[0].kill()
        it.processes[0].wait()
        await it.open(run)
        assert it.processes[1].poll() is None

    it.while_kept(story)


def test_the_one_of_a_deleted_run_ends(tmp_path: Path) -> None:
    it = Boards(tmp_path)
    run = it.run("a")

    async def story() -> None:
        await it.open(run)
        it.seed.report("a", "failed", 1)
        it.service.delete(run)
        await it.boards.refresh()
        assert it.processes[0].poll() is not None

    it.while_kept(story)


def test_a_long_path_of_the_data_directory_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it = Boards(tmp_path / ("long " * 20) / ("longer " * 20))
    run = it.run("a")
    monkeypatch.chdir(it.folder.parent)  # as the dashboard does

    async def story() -> None:
        await it.open(run)

    it.while_kept(story)


def test_without_event_files_nothing_is_started(tmp_path: Path) -> None:
    it = Boards(tmp_path)
    run = it.run("a", events=False)

    async def story() -> None:
        with pytest.raises(NothingToShow):
            await it.open(run)
        assert (it.processes, list(it.folder.iterdir())) == ([], [])

    it.while_kept(story)


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    it = Boards(tmp_path, program="print('reading'); import no_such_tensorboard")
    run = it.run("a")

    async def story() -> None:
        with pytest.raises(TensorBoardFailed, match=r"^ModuleNotFoundError: No module named 'no_such_tensorboard'$"):
            await it.open(run)

    it.while_kept(story)


def test_a_slow_one_is_waited_for_later(tmp_path: Path) -> None:
    it = Boards(tmp_path, program=f"import time, sys; time.sleep(0.5)\n{ANSWERS}")
    run = it.run("a")

    async def story() -> None:
        with pytest.raises(StillStarting):
            await it.open(run, wait_s=-1)
        await it.open(run)
        assert len(it.processes) == 1

    it.while_kept(story)


def test_many_who_open_it_at_once_get_the_same(tmp_path: Path) -> None:
    it = Boards(tmp_path)
    run = it.run("a")

    async def story() -> None:
        clients = await asyncio.gather(*(it.open(run) for _ in range(8)))
        assert (len(set(map(id, clients))), len(it.processes)) == (1, 1)

    it.while_kept(story)


@pytest.mark.filterwarnings("ignore:html5lib:DeprecationWarning")
def test_only_plugins_that_read_event_files_are_loaded() -> None:
    names = [plugin.__name__ if isinstance(plugin, type) else type(plugin).__name__ for plugin in
             board_server.plugins()]  # fmt: skip
    assert {"CorePluginLoader", "ScalarsPlugin", "ImagesPlugin", "HistogramsPlugin", "TextPlugin"} <= set(names)
    assert len(names) == len(board_server.PLUGINS)
    assert not [name for name in names if re.search("Projector|Debugger|Profile|WIT", name)]


HOLDER = """
import sys, time
from pathlib import Path
from dashboard.tensorboard.process import start_program
print(start_program(Path(sys.argv[1]), "title").pid, flush=True)
time.sleep(600)
"""


def test_it_dies_with_the_dashboard_and_listens_for_nobody_else(tmp_path: Path) -> None:
    write_events(tmp_path / "events")
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        pid = int(holder.stdout.readline())
        wait_for((tmp_path / "socket").is_socket, "TensorBoard")
        assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
        sockets = {number for name in _open_files(pid) for number in re.findall(r"socket:\[(\d+)\]", name)}
        internet = "".join(Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6"))
        assert not sockets & set(internet.split())
    finally:
        holder.kill()
        holder.communicate()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "TensorBoard to end")


def _open_files(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            yield str(link.readlink())


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_nothing_of_it_is_left_when_the_dashboard_ends(tmp_path: Path) -> None:
    with running(tmp_path / "data") as dashboard:
        node = dashboard.node()
        run = dashboard.launch()
        bring(node, node.task(), write_events(tmp_path / "logs"))
        opened(dashboard, run)
        folder = tmp_path / "data" / "tensorboard"
        (mine,) = [pid for pid in _pids() if str(folder) in _command_line(pid)]
    wait_for(lambda: str(folder) not in _command_line(mine), "TensorBoard to end")
    assert not folder.exists()


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
