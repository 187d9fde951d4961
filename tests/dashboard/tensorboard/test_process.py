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

import httpx
import pytest

from dashboard.security.tensorboard_pass import LIFETIME_S, Passes
from dashboard.security.token_files import Credentials
from dashboard.service.service import Service
from dashboard.settings import Settings
from dashboard.tensorboard import program as tensorboard_program
from dashboard.tensorboard.links import arrange, event_links
from dashboard.tensorboard.process import NothingToShow, StillStarting, TensorBoardFailed, TensorBoards
from db.queries import run_queries
from db.reports import progress
from domain.views import FileView
from tests.dashboard.event_files import write_events
from tests.dashboard.pages import served
from tests.dashboard.running import FakeNode, Running, running, wait_for
from tests.dashboard.seeded_store import Seed
from worker.session.client import TaskRef

EVENT = "events.out.tfevents.1760000000.n0.1.0"


@pytest.fixture(autouse=True)
def near_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program has it: the path of a socket may be about a hundred bytes long."""
    monkeypatch.chdir(tmp_path)


def file(number: int, path: str, attempt: int = 1, node_rank: int = 0, generation: int = 0) -> FileView:
    return FileView(number, attempt, node_rank, path, generation, size_bytes=1)


# -- links ------------------------------------------------------------------------------------------


def test_files_are_named_as_the_script_named_them_with_attempts_apart() -> None:
    files = [
        file(1, f"work/{EVENT}"),
        file(2, f"work/runs/a b/{EVENT}", attempt=2),
        file(3, f"workdir/lightning_logs/version_0/{EVENT}"),
        file(4, "logs/rank0.out"),
        file(5, "work/tfevents/model.pt"),
        file(6, "logs/tfevents.out"),
    ]
    assert event_links(files, nodes=1) == {
        f"attempt 1/{EVENT}": 1,
        f"attempt 1/lightning_logs/version_0/{EVENT}": 3,
        f"attempt 2/runs/a b/{EVENT}": 2,
    }


def test_nodes_are_apart_where_there_are_several() -> None:
    files = [file(1, f"work/{EVENT}"), file(2, f"work/{EVENT}", node_rank=1)]
    assert event_links(files, nodes=2) == {f"attempt 1/node 0/{EVENT}": 1, f"attempt 1/node 1/{EVENT}": 2}


def test_a_file_begun_anew_comes_after_what_it_held_before() -> None:
    links = event_links([file(8, f"work/{EVENT}", generation=k) for k in (0, 2, 10)], nodes=1)
    assert sorted(links) == [f"attempt 1/{EVENT}{end}" for end in ("", ".000002", ".000010")]


@pytest.mark.parametrize(
    "path",
    [
        f"../../../{EVENT}", f"/etc/{EVENT}", f"work/../../{EVENT}", f"work/{'x' * 5000}/{EVENT}", f"a//./{EVENT}",
        f"work/a\nb\0c/{EVENT}", "work/" + "d/" * 500 + EVENT, f"work/{'é' * 200}{EVENT}", "work/\udc80tfevents",
    ],
)  # fmt: skip
def test_no_name_leads_out_of_the_folder(path: str, tmp_path: Path) -> None:
    target = tmp_path / "17"
    target.write_text("events")
    links = event_links([file(17, path)], nodes=1)
    arrange(tmp_path / "events", dict.fromkeys(links, target))
    made = [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert [link.readlink() for link in made] == [target]
    assert made[0].is_relative_to(tmp_path / "events" / "attempt 1")
    assert "tfevents" in made[0].name


def test_names_that_become_one_are_kept_apart() -> None:
    links = event_links([file(1, f"work/a\x01/{EVENT}"), file(2, f"work/a\x02/{EVENT}")], nodes=1)
    assert sorted(links.values()) == [1, 2]


def test_links_come_and_go_with_the_files(tmp_path: Path) -> None:
    target = tmp_path / "1"
    target.touch()
    arrange(
        tmp_path / "events",
        {"a/tfevents.1": target, "a/tfevents.1/tfevents.2": target, "b/c": tmp_path / "gone"},
    )
    arrange(tmp_path / "events", {"a/tfevents.1": target, "c/tfevents.1": target})
    shown = {str(p.relative_to(tmp_path / "events")) for p in tmp_path.rglob("*") if p.is_symlink()}
    assert shown == {"a/tfevents.1", "c/tfevents.1"}


# -- passes -----------------------------------------------------------------------------------------


def test_a_pass_opens_one_run_for_a_day() -> None:
    passes, now = Passes(Credentials("u" * 43, "j" * 43)), 1_760_000_000.0
    issued = passes.issue("abcdefghij", now)
    assert issued == passes.issue("abcdefghij", now + 60), "browsers keep what they have loaded"
    good = f"/tensorboard/abcdefghij/{issued}/data/runs"
    assert passes.admits(good, now)
    assert passes.admits(good, now + LIFETIME_S - 3600)
    assert not passes.admits(good, now + LIFETIME_S + 1)
    assert not passes.admits(good, now - 7200)
    assert not Passes(Credentials("v" * 43, "j" * 43)).admits(good, now)
    for wrong in (
        f"/tensorboard/abcdefghik/{issued}/data/runs", f"/tensorboard/abcdefghij/{issued}", "/tensorboard/abcdefghij/",
        f"/tensorboard/abcdefghij/{issued[:-1]}0/x", f"/tensorboard/abcdefghij/{int(now) + 3600}{issued[10:]}/x",
        f"/api/abcdefghij/{issued}/x", f"/tensorboard/a/../abcdefghij/{issued}/x", f"/tensorboard/é/{issued}/x",
    ):  # fmt: skip
        assert not passes.admits(wrong, now) or wrong == good, wrong


# -- processes --------------------------------------------------------------------------------------

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
                process = subprocess.Popen(
                    [sys.executable, "-c", program, str(folder)], stdout=log, stderr=log
                )
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
            run_queries.attempts(self.service.store, self.seed.runs[label])[-1].fence,
        )
        file_id, _ = progress.file_for_append(store, self.seed.node_ids["n"], fence, 0, path, 0)
        self.service.files.append(file_id, 0, b"events")
        progress.file_grew(store, file_id, 0, 6)

    async def open(self, run_id: str, wait_s: float = 20.0) -> httpx.AsyncClient:
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


def test_a_long_path_of_the_data_directory_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        with pytest.raises(
            TensorBoardFailed, match=r"^ModuleNotFoundError: No module named 'no_such_tensorboard'$"
        ):
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


# -- the real one -----------------------------------------------------------------------------------


def bring(node: FakeNode, part: TaskRef, folder: Path) -> None:
    """Mirror a folder's files as the worker does."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        node.client.append(part, f"work/{path.relative_to(folder).as_posix()}", 0, 0, path.read_bytes())


def opened(dashboard: Running, run: str) -> str:
    """The page, once it is TensorBoard's; its parts' address."""

    def page() -> re.Match[str] | None:
        answer = dashboard.http.get(f"/tensorboard/{run}/")
        assert answer.status_code == 200
        return re.search(r'<base href="([^"]+)">', answer.text)

    return str(wait_for(page, "TensorBoard")[1])


def test_a_run_opens_in_tensorboard_behind_the_login(
    dashboard: Running, node: FakeNode, tmp_path: Path
) -> None:
    run = dashboard.launch(name="seen <b>from</b> all sides")
    part = node.part()
    address = f"/tensorboard/{run}/"
    anonymous = dashboard.anonymous()
    page = anonymous.get(address, headers={"Accept": "text/html"})
    assert (page.status_code, "Sign in" in page.text) == (401, True)
    assert anonymous.get(address).status_code == 401
    nothing = dashboard.http.get(address)
    assert "has not written any event files yet" in nothing.text
    assert "&lt;b&gt;from&lt;/b&gt;" in nothing.text

    bring(node, part, write_events(tmp_path / "logs"))
    base = opened(dashboard, run)
    parts = dashboard.anonymous(Origin="null")
    tags = {
        plugin: parts.get(f"{base}data/plugin/{plugin}/tags").json()
        for plugin in ("scalars", "images", "histograms", "text")
    }
    assert {plugin: list(of_run) for plugin, of_run in tags.items()} == {
        key: ["attempt 1/runs/a"] for key in tags
    }
    assert [next(iter(tags[plugin]["attempt 1/runs/a"])) for plugin in ("scalars", "images", "histograms")] == [
        "train/loss", "digits", "weights",
    ]  # fmt: skip
    points = parts.get(
        f"{base}data/plugin/scalars/scalars?run=attempt%201%2Fruns%2Fa&tag=train%2Floss"
    ).json()
    assert [(step, value) for _, step, value in points] == [(0, 2.0), (1, 1.0), (2, 0.5)]
    asked = {"requests": (None, '[{"plugin":"scalars","tag":"train/loss"}]')}
    posted = parts.post(
        f"{base}experiment/defaultExperimentId/data/plugin/timeseries/timeSeries", files=asked
    )
    assert posted.status_code == 200, "the page asks with POST, too"

    without = base.replace(run, "abcdefghij"), base[:-2] + ("0/" if base[-2] != "0" else "1/"), address
    for wrong in without:
        assert parts.get(f"{wrong}data/runs").status_code == 401, wrong
    assert dashboard.http.get(f"{address}data/runs").status_code == 404
    assert (
        parts.get(base).headers["content-security-policy"].endswith("sandbox allow-scripts allow-downloads")
    )
    assert parts.put(f"{base}data/runs").status_code == 401
    assert parts.get("/api/runs").status_code == 401, "a pass is good for TensorBoard only"
    assert parts.post("/api" + base, json={}).status_code == 401


def test_neither_session_nor_token_reaches_tensorboard_and_it_sets_nothing(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        told.append(request)
        headers = {"Set-Cookie": "a=b", "Server": "x", "Connection": "close", "Location": "/", "ETag": '"1"'}
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"<head></head>"))

    async def reach(*_: object) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://tensorboard")

    monkeypatch.setattr(TensorBoards, "reach", reach)
    run = dashboard.launch()
    base = opened(dashboard, run)
    session = {"Cookie": f"{dashboard.service.credentials.cookie_name}=x", "Accept": "image/png", "X-Y": "z"}
    part = dashboard.http.post(f"{base}a%20b/c?d=e%2Ff&g", headers=session, content=b"asked")
    assert part.headers["etag"] == '"1"'
    assert not {"set-cookie", "location"} & part.headers.keys()
    assert part.headers["server"] != "x" if "server" in part.headers else True
    sent = told[-1]
    assert (sent.method, sent.url.raw_path, sent.content) == ("POST", b"/a%20b/c?d=e%2Ff&g", b"asked")
    assert not {"cookie", "authorization", "x-y"} & sent.headers.keys()
    assert sent.headers["accept"] == "image/png"
    asking = {"Access-Control-Request-Headers": "x-tensorboard-feature-flags", "Origin": "null"}
    preflight = dashboard.anonymous().request("OPTIONS", f"{base}data/runs", headers=asking)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "null"
    assert preflight.headers["access-control-allow-headers"] == "x-tensorboard-feature-flags"
    assert dashboard.anonymous().post(f"{base}x", content=b"x" * (3 << 20)).status_code == 413


def test_pages_in_its_place_say_what_to_do(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = dashboard.launch(name="a")
    moved = dashboard.http.get(f"/tensorboard/{run}")
    assert moved.headers["location"] == f"/tensorboard/{run}/"
    node.report(node.part(), "failed")
    ended = dashboard.http.get(f"/tensorboard/{run}/").text
    assert "has ended without writing" in ended
    assert "refresh" not in ended
    missing = dashboard.http.get("/tensorboard/abcdefghij/")
    assert (missing.status_code, "There is no such run" in missing.text) == (404, True)

    async def broken(*_: object) -> httpx.AsyncClient:
        raise TensorBoardFailed("ModuleNotFoundError: No module named 'tensorboard'")

    monkeypatch.setattr(TensorBoards, "reach", broken)
    answer = dashboard.http.get(f"/tensorboard/{run}/")
    assert answer.status_code == 503
    assert "No module named &#x27;tensorboard&#x27;" in answer.text


@pytest.mark.filterwarnings("ignore:html5lib:DeprecationWarning")
def test_only_plugins_that_read_event_files_are_loaded() -> None:
    names = [plugin.__name__ if isinstance(plugin, type) else type(plugin).__name__ for plugin in
             tensorboard_program.plugins()]  # fmt: skip
    assert {"CorePluginLoader", "ScalarsPlugin", "ImagesPlugin", "HistogramsPlugin", "TextPlugin"} <= set(
        names
    )
    assert len(names) == len(tensorboard_program.PLUGINS)
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
        wait_for((tmp_path / "socket").is_socket, "TensorBoard", 60)
        assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
        sockets = {number for name in _open_files(pid) for number in re.findall(r"socket:\[(\d+)\]", name)}
        internet = "".join(
            Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6")
        )
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
        bring(node, node.part(), write_events(tmp_path / "logs"))
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


def test_the_run_page_leads_there(tmp_path: Path) -> None:
    with served(tmp_path) as pages:
        pages.seed.node("n", 2)
        run = pages.seed.launch("a", 10, gpus_per_node=1)
        links = [button.proto for button in pages.open("run", id=run).get("link_button")]
        assert [link.url for link in links if link.label == "TensorBoard"] == [f"/tensorboard/{run}/"]
