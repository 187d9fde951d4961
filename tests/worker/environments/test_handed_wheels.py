"""A node without a way to the index gets the wheels that another node could fetch, or that a person put there."""

from __future__ import annotations

import hashlib
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import pytest

from dashboard.storage.wheels import Wheels
from domain.environments.wheels import FORGOTTEN_S, MOST_WANTED, OFFERED_S, Wants, WheelFile
from tests.dashboard.running import LIMIT_S
from tests.end_to_end.product import wait_for
from tests.worker.environments.making import Index, Node, Server, outer_address, write_wheels
from worker.environments import wheels
from worker.environments.wheels import PIECE_BYTES, HandedWheels, WheelFetcher, chosen
from worker.launch.preparation import CannotStart
from worker.session.client import TaskRef

pytestmark = pytest.mark.real

REQUIREMENTS = {"requirements.txt": f"torch=={metadata.version('torch').partition('+')[0]}\nlocked==1.0\n"}

NAME = "made-1-py3-none-any.whl"


class Moved(BaseHTTPRequestHandler):
    """Weights at every address but one, which leads elsewhere; it remembers what was asked for."""

    asked: ClassVar[list[str]] = []
    to: ClassVar[str] = ""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", self.to)
        self.end_headers()
        self.wfile.write(b"weights")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], address: str = "127.0.0.1") -> Iterator[ThreadingHTTPServer]:
    """A server on a free port."""
    Moved.asked.clear()
    with ThreadingHTTPServer((address, 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield http
        http.shutdown()


class Pair:
    """A node with wheels, and one whose index is not reached."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.store, self.wants = Wheels(folder / "server"), Wants()
        self.online = Node(folder / "a", wheels, Server(self.store, self.wants, "a"))
        self.offline = Node(folder / "b", folder, Server(self.store, self.wants, "b"))
        self.index = Index(wheels)
        for node in (self.online, self.offline):
            node.env = {"PIP_INDEX_URL": self.index.url, "UV_CACHE_DIR": str(node.folder / "cache")}
        self.offline.env["UV_OFFLINE"] = "1"
        fetcher = WheelFetcher(self.online.server, folder / "a" / "wheels", lambda work: work())  # type: ignore[arg-type]
        self._fetch, self._ended = fetcher.fetch, threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        """The heartbeats of the node with wheels, which bring it what it is asked for."""
        while not self._ended.wait(0.05):
            self._fetch(self.wants.offers("a", 0.0))

    def __enter__(self) -> Pair:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.index.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path, write_wheels(tmp_path / "wheels")) as nodes:
        yield nodes


def test_a_node_offline_installs_what_another_fetched(pair: Pair):
    first = pair.online.make(REQUIREMENTS)
    second = pair.offline.make(REQUIREMENTS)
    assert second.spec.python is not None
    assert second.spec.python != first.spec.python
    assert sorted(wheel.name for wheel in pair.store.files()) == sorted(
        path.name for path in pair.online.wheels.iterdir() if "locked-2" not in path.name
    )
    told = [report.note for report in pair.offline.reports]
    assert any("from the dashboard" in note for note in told)
    assert not (pair.offline.folder / "envs" / f"{pair.offline.environments[0]}.wheels.tmp").exists()


def test_wheels_that_a_person_put_there_need_no_other_node(pair: Pair):
    pair.online.make(REQUIREMENTS)  # resolves the lock
    for wheel in pair.online.wheels.iterdir():
        shutil.copy(wheel, pair.store.root)
    made = pair.offline.make(REQUIREMENTS)
    assert made.spec.python is not None
    assert not pair.wants


def test_what_nobody_can_fetch_fails_at_once_and_names_the_package(pair: Pair):
    pair.online.make(REQUIREMENTS)
    pair.offline.server.online = {"b"}
    with pytest.raises(CannotStart) as refused:
        pair.offline.make(REQUIREMENTS)
    assert "could not be built on node gpu-2: " in str(refused.value)
    assert "locked==1.0: " in str(refused.value) or "torch==" in str(refused.value)


@pytest.mark.long
def test_the_nodes_of_a_run_install_what_the_first_resolved(pair: Pair):
    late: list[str | None] = []
    offline = threading.Thread(target=lambda: late.append(pair.offline.make(REQUIREMENTS, nodes=2).spec.python))
    offline.start()
    wait_for(lambda: any("reaches the index" in report.note for report in pair.offline.reports), "it to wait")
    pair.online.make(REQUIREMENTS, nodes=2)
    offline.join()
    assert late[0] is not None


def test_a_wheel_is_asked_of_one_node_at_a_time_and_of_the_next_once_that_failed():
    wants, wheel = Wants(), WheelFile(name="a-1-py3-none-any.whl", sha256="a" * 64, url="https://x.example/a")
    assert wants.want("x", [wheel], {"x", "y", "z"}, 0.0) == []
    assert wants.offers("x", 0.0) == []
    assert wants.offers("y", 0.0) == [wheel]
    assert wants.offers("z", 1.0) == []
    wants.failed("y", wheel.sha256)
    assert wants.offers("y", 2.0) == []
    assert wants.offers("z", 2.0) == [wheel]
    wants.want("x", [wheel], {"x", "y", "z"}, 50.0)
    assert wants.offers("z", 2.0 + OFFERED_S) == [wheel]
    wants.failed("z", wheel.sha256)
    assert wants.want("x", [wheel], {"x", "y", "z"}, 63.0) == [wheel.sha256]
    assert wants.offers("w", 200.0) == []


def test_a_package_without_a_wheel_is_not_left_out(tmp_path: Path):
    source = {"name": "p", "version": "1", "sdist": {"url": "https://x/p-1.tar.gz", "hashes": {"sha256": "a" * 64}}}
    elsewhere = {"name": "q", "version": "1", "marker": "sys_platform == 'win32'"}
    server = Server(Wheels(tmp_path / "server"), Wants())
    handed = HandedWheels(server, TaskRef(1, 0), tmp_path / "wheels", lambda: False, lambda _: None)  # type: ignore[arg-type]
    assert handed.bring([source, elsewhere], "3.12.1") is None
    assert handed.bring([elsewhere], "3.12.1") == []


def test_not_more_wheels_are_waited_for_than_a_memory_holds():
    wants = Wants()

    def asked(first: int, now: float) -> list[str]:
        digests = (f"{number:064x}" for number in range(first, first + MOST_WANTED))
        wheels = [WheelFile(name=NAME, sha256=sha256, url="https://x.example/a") for sha256 in digests]
        return wants.want("a", wheels, ["a", "b"], now)

    assert asked(0, 0.0) == []
    assert len(asked(MOST_WANTED, 0.0)) == MOST_WANTED
    assert asked(0, 1.0) == [] and len(wants.offers("b", 1.0)) == MOST_WANTED
    wants.offers("b", 1.0 + FORGOTTEN_S)
    assert asked(MOST_WANTED, 1.0 + FORGOTTEN_S) == []


def test_the_password_of_an_index_goes_to_that_index_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    received: list[str | None] = []

    class Recording(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers.get("Authorization"))
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with serving(Recording, outer_address()) as http:
        server = Server(Wheels(tmp_path / "server"), Wants())
        fetcher = WheelFetcher(server, tmp_path / "wheels", lambda work: work())  # type: ignore[arg-type]
        wheel = WheelFile(
            name="a-1-py3-none-any.whl", sha256="a" * 64, url=f"http://{outer_address()}:{http.server_port}/a"
        )
        for port in (http.server_port, 9):
            monkeypatch.setenv("UV_INDEX", f"mine=http://me:hunter22@{outer_address()}:{port}/simple")
            fetcher.fetch([wheel])
    assert received == ["Basic bWU6aHVudGVyMjI=", None]


@pytest.mark.parametrize("limit", ["LARGEST_WHEEL_BYTES", "LONGEST_FETCH_S"])
def test_a_wheel_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    heard_of_end = threading.Event()

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(200):
                    self.wfile.write(bytes(PIECE_BYTES))
            except OSError:
                heard_of_end.set()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    monkeypatch.setattr(wheels, limit, 0)
    with serving(Endless, outer_address()) as http:
        wants = Wants()
        fetcher = WheelFetcher(Server(Wheels(tmp_path / "server"), wants), tmp_path / "wheels", lambda work: work())  # type: ignore[arg-type]
        fetcher.fetch([WheelFile(name=NAME, sha256="a" * 64, url=f"http://{outer_address()}:{http.server_port}/a")])
        assert heard_of_end.wait(LIMIT_S)
    assert list((tmp_path / "wheels").iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "file://{file}", "{file}", "ftp://{outer}/a", "", "http://", "http:///a", "http://127.0.0.1:{port}/a",
        "http://localhost:{port}/a", "http://a.localhost:{port}/a", "http://[::1]:{port}/a", "http://0.0.0.0:{port}/a",
        "http://[::ffff:127.0.0.1]:{port}/a", "http://127.1:{port}/a", "http://2130706433:{port}/a",
        "http://0x7f.1:{port}/a", "http://169.254.169.254/latest", "http://[fe80::1]/a", "http://[fd00:ec2::254]/a",
    ],
)  # fmt: skip
def test_no_node_is_offered_or_fetches_what_lies_on_a_machine_itself(tmp_path: Path, url: str) -> None:
    with serving(Moved) as http:
        (tmp_path / NAME).write_bytes(b"weights")
        named = url.format(file=tmp_path / NAME, port=http.server_port, outer=outer_address())
        wheel = WheelFile(name=NAME, sha256=hashlib.sha256(b"weights").hexdigest(), url=named)
        wants, stored = Wants(), Wheels(tmp_path / "server")
        assert wants.want("a", [wheel], {"a", "b"}, 0.0) == [wheel.sha256] and wants.offers("b", 0.0) == []
        fetched(wheel, stored, tmp_path)
    assert stored.files() == [] and Moved.asked == []


def test_what_a_name_or_a_redirect_leads_to_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Wheels(tmp_path / "server")
    with serving(Moved, outer_address()) as outer, serving(Moved) as own:
        Moved.to = f"http://127.0.0.1:{own.server_port}/inner"
        digest = hashlib.sha256(b"weights").hexdigest()
        at_outer = f"http://{outer_address()}:{outer.server_port}"
        fetched(WheelFile(name=NAME, sha256=digest, url=f"{at_outer}/moved"), stored, tmp_path)
        assert Moved.asked == ["/moved"] and stored.files() == []
        named = f"http://{socket.gethostname()}.invalid:{own.server_port}/named"
        lookup = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **options: lookup("127.0.0.1", *more, **options))
        fetched(WheelFile(name=NAME, sha256=digest, url=named), stored, tmp_path)
        assert Moved.asked == ["/moved"] and stored.files() == []
        monkeypatch.undo()
        Moved.to = f"{at_outer}/there"
        fetched(WheelFile(name=NAME, sha256=digest, url=f"{at_outer}/moved"), stored, tmp_path)
    assert Moved.asked == ["/moved", "/moved", "/there"] and [wheel.sha256 for wheel in stored.files()] == [digest]


def fetched(wheel: WheelFile, stored: Wheels, folder: Path) -> None:
    """Let a node fetch a wheel for another."""
    server = Server(stored, Wants())
    WheelFetcher(server, folder / "fetched", lambda work: work()).fetch([wheel])  # type: ignore[arg-type]


def test_the_wheel_that_fits_best_is_chosen():
    def wheel(name: str) -> dict[str, object]:
        return {"url": f"https://x/{name}", "hashes": {"sha256": "a" * 64}}

    names = ["p-1-py3-none-any.whl", "p-1-cp311-cp311-manylinux_2_17_x86_64.whl", "p-1-cp312-cp312-win_amd64.whl"]
    packages = [
        {"name": "p", "wheels": [wheel(name) for name in names]},
        {"name": "q", "wheels": [wheel("q-1-py3-none-any.whl")], "marker": "sys_platform == 'win32'"},
        {"name": "r", "wheels": [wheel("r-1-py3-none-any.whl")], "marker": "python_version < '3.13'"},
    ]
    assert [pair[1]["url"].rpartition("/")[2] for pair in chosen(packages, "3.11.7")] == [
        names[1],
        "r-1-py3-none-any.whl",
    ]
    assert [pair[1]["url"].rpartition("/")[2] for pair in chosen(packages, "3.13.0")] == [names[0]]
