"""TensorBoard processes for runs: started on demand, a few at a time, ended when idle."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2

from dashboard.private_files import make_private_directory
from dashboard.storage.compressed import compressed_path, unpack
from dashboard.storage.files import Files
from dashboard.tensorboard.board_server import EVENTS, SOCKET
from db.attempts import attempt_queries
from db.engine import Store
from db.people.ownership import owned_run
from domain.clock import SYSTEM_CLOCK
from domain.text.formats import describe_exit
from domain.views import FileView, RunView

MOST_AT_ONCE = 3
IDLE_S = 600.0
"""Idle seconds before a process ends; an open page sends a request every half minute unless its tab is hidden."""


class TensorBoards:
    """All TensorBoard processes; used from the event loop's thread only, because they die with that thread."""

    def __init__(
        self,
        store: Store,
        files: Files,
        folder: Path,
        *,
        start: Start | None = None,
        now: Callable[[], float] = SYSTEM_CLOCK.now,
        idle_s: float = IDLE_S,
        most_at_once: int = MOST_AT_ONCE,
    ) -> None:
        self._store, self._files, self._folder = store, files, folder
        self._start, self._now = start or start_program, now
        self._idle_s, self._most_at_once = idle_s, most_at_once
        self._boards: dict[str, Board] = {}
        self._opened_count = 0
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Refresh the processes while the context lasts; end them all at its exit."""
        shutil.rmtree(self._folder, ignore_errors=True)  # left by a dashboard that was killed
        refreshing = asyncio.create_task(self._refresh_regularly())
        try:
            yield
        finally:
            refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await refreshing
            for board in list(self._boards.values()):
                await self._end(board)
            shutil.rmtree(self._folder, ignore_errors=True)

    async def reach(self, run: RunView, wait_s: float) -> httpx2.AsyncClient:
        """A client of the run's TensorBoard, which is started if needed.

        Raises NothingToShow, StillStarting, TensorBoardFailed."""
        async with self._starting:
            board = self._boards.get(run.id)
            if board is not None and board.is_ready and not board.is_running:
                await self._end(board)
                board = None
            board = board or await self._open(run)
        board.used_at = self._now()
        if not board.is_ready:
            await self._wait_until_ready(board, wait_s)
        return board.http

    async def refresh(self) -> None:
        """Link new event files; end processes that are idle or whose run was deleted."""
        for board in list(self._boards.values()):
            if self._now() - board.used_at > self._idle_s or not await self._update_links(board.run_id, board.folder):
                await self._end(board)

    async def _refresh_regularly(self) -> None:
        while True:
            await SYSTEM_CLOCK.sleep(REFRESH_EVERY_S)
            try:
                await self.refresh()
            except Exception:  # the store may be locked for a while; the next refresh tries again
                log.exception("refreshing TensorBoard failed")

    async def _open(self, run: RunView) -> Board:
        self._opened_count += 1
        folder = self._folder / f"{run.id}-{self._opened_count}"
        for directory in (self._folder, folder):  # access to the folder gives access to the events
            make_private_directory(directory)
        if not await self._update_links(run.id, folder):
            folder.rmdir()
            raise NothingToShow
        while len(self._boards) >= self._most_at_once:
            await self._end(min(self._boards.values(), key=lambda board: board.used_at))
        now = self._now()
        transport = httpx2.AsyncHTTPTransport(uds=_socket_path(folder / SOCKET))
        http = httpx2.AsyncClient(transport=transport, base_url="http://tensorboard", timeout=60)
        board = Board(run.id, folder, self._start(folder, run.name), http, now, now)
        self._boards[run.id] = board
        log.info("run %s: TensorBoard started, process %d", run.id, board.process.pid)
        return board

    async def _update_links(self, run_id: str, folder: Path) -> bool:
        """Link the run's event files; returns whether there are any."""

        def update() -> bool:
            if (run := owned_run(self._store, run_id)) is None or run.is_deleted:
                return False
            nodes = max((len(a.tasks) for a in attempt_queries.attempts(self._store, run_id)), default=1)
            links = event_links(attempt_queries.files(self._store, run_id), nodes)
            if links and folder.is_dir():
                arrange(folder / EVENTS, {name: self._files.mirrored(id) for name, id in links.items()})
            return bool(links)

        return await asyncio.to_thread(update)

    async def _wait_until_ready(self, board: Board, wait_s: float) -> None:
        deadline = self._now() + wait_s
        while not board.is_ready:
            if await _accepts(_socket_path(board.folder / SOCKET)):
                board.is_ready = True
            elif not board.is_running or self._now() - board.started_at > LONGEST_START_S:
                reason = _failure_reason(board)
                await self._end(board)
                raise TensorBoardFailed(reason)
            elif self._now() > deadline:
                raise StillStarting
            else:
                await SYSTEM_CLOCK.sleep(POLL_S)

    async def _end(self, board: Board) -> None:
        if self._boards.get(board.run_id) is board:
            del self._boards[board.run_id]
        board.process.send_signal(signal.SIGKILL)  # it has no state to save
        await asyncio.to_thread(board.process.wait)
        await board.http.aclose()
        shutil.rmtree(board.folder, ignore_errors=True)
        log.info("run %s: TensorBoard ended", board.run_id)


log = logging.getLogger("rankzero")
REFRESH_EVERY_S = 2.0
POLL_S = 0.05
LONGEST_START_S = 300.0
"""Trainings have priority, so on a busy machine it starts slowly; its page waits and asks again."""
Start = Callable[[Path, str], "subprocess.Popen[bytes]"]
"""(folder, title) -> the process that serves the folder."""


class NothingToShow(Exception):
    """No event file of the run has arrived."""


class StillStarting(Exception):
    """TensorBoard is not ready yet."""


class TensorBoardFailed(Exception):
    """TensorBoard ended before it was ready; the message is its last output."""


@dataclass
class Board:
    """One TensorBoard process and its run."""

    run_id: str
    folder: Path
    process: subprocess.Popen[bytes]
    http: httpx2.AsyncClient
    started_at: float
    used_at: float
    is_ready: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self.process.poll() is None


def start_program(folder: Path, title: str) -> subprocess.Popen[bytes]:
    """Start TensorBoard. Nothing runs between fork and exec, because the dashboard has threads."""
    title = "".join(c for c in title if c.isprintable()).encode(errors="replace").decode()
    with (folder / "log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "dashboard.tensorboard.board_server", str(folder),
             f"--parent={os.getpid()}", f"--title={title}"],
            env={name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip


def _socket_path(socket: Path) -> str:
    """The shorter of the absolute and relative path: a socket's path is limited to about a hundred bytes."""
    return min(str(socket), os.path.relpath(socket), key=len)


async def _accepts(socket: str) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.close()
    return True


def _failure_reason(board: Board) -> str:
    """Why it is not ready: its last output, or its exit code."""
    code = board.process.poll()
    if code is None:
        return f"it did not answer within {LONGEST_START_S:.0f} s"
    with suppress(OSError):
        lines = (board.folder / "log").read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1].strip()[:300]
    return describe_exit(code)


# A run's event files under their own names: a folder of links for TensorBoard to read.

OWN_FOLDERS = ("work", "workdir")
"""Prefixes that the worker puts before paths below the working directory."""
LONGEST_PART_BYTES = 120
MOST_PARTS = 20


def is_event_file(file: FileView) -> bool:
    """Whether the name contains `tfevents`, which is the rule of TensorBoard and of the worker."""
    return "tfevents" in file.path.rpartition("/")[2] and not file.path.startswith("logs/")


def event_links(files: Iterable[FileView], nodes: int) -> dict[str, int]:
    """The link of each event file below TensorBoard's folder, with the file's id.

    Each attempt has a folder, and each node when there are several. A truncated file keeps its earlier generations."""
    links: dict[str, int] = {}
    for file in sorted(filter(is_event_file, files), key=lambda f: (f.attempt, f.node_rank, f.path, f.generation)):
        folders = [f"attempt {file.attempt}", *([f"node {file.node_rank}"] if nodes > 1 else [])]
        name = "/".join([*folders, *_parts(file.path)])
        if file.generation:
            name += f".{file.generation:06}"
        if name in links:  # names that differ only in characters that file names cannot have
            name += f".{file.id}"
        links[name] = file.id
    return links


def arrange(folder: Path, targets: Mapping[str, Path]) -> None:
    """Make the links below `folder` match `targets`; existing links stay untouched.

    A compressed file has its content there instead."""
    existing = {str(link.relative_to(folder)): link for link in folder.rglob("*") if not link.is_dir()}
    for name, link in existing.items():
        if name not in targets:
            link.unlink()
    for name, target in targets.items():
        link = folder / name
        if link.exists() and link.is_symlink() == target.exists():
            continue
        if target.exists() or compressed_path(target).exists():
            try:
                link.unlink(missing_ok=True)
                link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _place(link, target)
            except OSError as error:  # the same name is a file and a folder
                log.warning("TensorBoard does not show %s: %s", target.name, error)


def _place(link: Path, target: Path) -> None:
    """Link a file, or write its content there where it is compressed."""
    if target.exists():
        link.symlink_to(target)
    else:
        unpack(target, link, link.with_name("unpacking"))  # a name that TensorBoard does not read


def _parts(path: str) -> list[str]:
    """The path's components, each safe as a file name below the folder."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if len(parts) > 1 and parts[0] in OWN_FOLDERS:
        parts = parts[1:]
    return [_part(part) for part in parts[-MOST_PARTS:]]


def _part(part: str) -> str:
    safe = "".join(c if c.isprintable() else "_" for c in part).encode("utf-8", "replace")
    return safe[-LONGEST_PART_BYTES:].decode("utf-8", "ignore")
