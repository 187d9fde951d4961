"""The dashboard as a program: where it listens, what it leaves behind, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from domain.messages import NodeFacts
from tests.dashboard.running import wait_for
from tests.end_to_end.product import WITHOUT_TLS
from worker.session.client import Client
from worker.session.failures import ServerAway

FACTS = NodeFacts(name="n0", instance_id="i", hostname="h", address="10.0.0.1", devices=[])
LONG_POLL_S = 20
LIMIT_S = 180


class Program:
    """A started `rankzero dashboard`."""

    def __init__(self, data: Path, *options: str, cwd: Path | None = None) -> None:
        self.data = data
        self.log = data.parent / "log"
        argv = [sys.executable, "-P", "-m", "cli.main", "dashboard", "--data", str(data), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=cwd)

    def wait_ready(self) -> Program:
        """Until it says where it is."""
        wait_for(lambda: self.about or self.process.poll() is not None, "server.json", LIMIT_S)
        assert self.about, self.log.read_text()
        return self

    @property
    def about(self) -> dict[str, Any]:
        """server.json, or nothing."""
        with suppress(OSError, ValueError):
            server_file: dict[str, Any] = json.loads((self.data / "server.json").read_text())
            return server_file if server_file["pid"] == self.process.pid else {}
        return {}

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def get(self, path: str, **headers: str) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {self.token}"}
        return httpx2.get(self.about["url"] + path, headers=bearer | headers, timeout=20, **WITHOUT_TLS)

    def exit_code(self) -> int:
        """Wait until it ends by itself; it has ended afterwards in any case."""
        try:
            return self.process.wait(LIMIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end(self, sig: int = signal.SIGTERM) -> float:
        """How long it takes to end."""
        started = time.monotonic()
        self.process.send_signal(sig)
        self.process.wait(LIMIT_S)
        return time.monotonic() - started


@contextmanager
def dashboard(data: Path, *options: str, cwd: Path | None = None) -> Iterator[Program]:
    program = Program(data, "--port", "0", *options, cwd=cwd)
    try:
        yield program.wait_ready()
    finally:
        program.kill()


def test_it_listens_here_alone_and_says_where(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        listening = [c.laddr for c in psutil.Process(program.process.pid).net_connections() if c.status == "LISTEN"]
        assert listening == [("127.0.0.1", program.about["port"])]
        assert program.about["url"] == f"http://127.0.0.1:{program.about['port']}"
        assert program.get("/").status_code == 200
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in program.data.iterdir() if p.is_file()}
        assert set(modes.values()) == {0o600}, modes
        assert stat.S_IMODE(program.data.stat().st_mode) == 0o700


def test_it_ends_without_waiting_for_those_who_wait(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        url, bearer = program.about["url"], {"Authorization": f"Bearer {program.token}"}
        client = Client(url)
        join = (program.data / "join-token").read_text().strip()
        client.register(FACTS, None, join)
        version = client.desired_state(None, 0).version
        answers: list[Any] = []

        def poll() -> None:
            try:
                answers.append(client.desired_state(version, LONG_POLL_S))
            except ServerAway as error:
                answers.append(error)

        polling = threading.Thread(target=poll)
        polling.start()
        live, pages = (url.replace("http", "ws") + path for path in ("/api/live?run=x", "/_stcore/stream"))
        with (
            connect(live, additional_headers=bearer, proxy=None),
            connect(pages, additional_headers=bearer, proxy=None, subprotocols=[Subprotocol("streamlit")]),
            httpx2.stream("GET", f"{url}/api/docs", headers=bearer, trust_env=False),
        ):
            took_s = program.end()
        polling.join()
        client.close()
        assert program.process.returncode == 0
        assert took_s < LONG_POLL_S / 2, program.log.read_text()
        assert not (program.data / "server.json").exists()
        assert len(answers) == 1


def test_ctrl_c_ends_it_in_order(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        program.end(signal.SIGINT)
        assert program.process.returncode == 0
        assert "Traceback" not in program.log.read_text()


@pytest.mark.long
def test_killed_and_started_again_it_lets_the_same_people_in(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        token = program.token
        program.end(signal.SIGKILL)
    with dashboard(tmp_path / "data") as program:
        assert program.token == token
        assert program.get("/api/runs").json() == []


def test_two_on_one_data_directory_are_one_too_many(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        second = Program(tmp_path / "data", "--port", "0")
        assert second.exit_code() == 1
        assert "already" in second.log.read_text()
        assert program.get("/api/health").status_code == 200
        assert program.about


def test_a_taken_port_is_said_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        program = Program(tmp_path / "data", "--port", str(taken.getsockname()[1]))
        assert program.exit_code() == 1
    assert "address already in use" in program.log.read_text()
    assert "Traceback" not in program.log.read_text()


def test_a_damaged_store_is_not_started_on(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rankzero.db").write_bytes(b"this was never a database" * 400)
    program = Program(tmp_path / "data", "--port", "0")
    assert program.exit_code() == 1
    assert "damaged" in program.log.read_text()
    assert (tmp_path / "data" / "rankzero.db").read_bytes().startswith(b"this was never")


@pytest.mark.long
def test_a_streamlit_folder_where_it_is_started_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "cwd" / ".streamlit").mkdir(parents=True)
    (tmp_path / "cwd" / ".streamlit" / "config.toml").write_text(
        "[server]\nport = 1\nenableCORS = false\nenableXsrfProtection = false\nbaseUrlPath = 'x'\n"
        "[browser]\ngatherUsageStats = true\n"
    )
    with dashboard(tmp_path / "data", cwd=tmp_path / "cwd") as program:
        assert program.get("/_stcore/health").status_code == 200
        host_config = program.get("/_stcore/host-config").json()
        assert host_config.get("enableCustomParentMessages") is not True


def test_no_token_is_ever_printed(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        url, token = program.about["url"], program.token
        httpx2.get(f"{url}/run?token={token}", trust_env=False)
        httpx2.get(f"{url}/run?token={token}x", trust_env=False)
        httpx2.post(f"{url}/login", data={"token": token + "y"}, trust_env=False)
        program.get("/api/runs", Cookie=f"x={token}")
        program.get("/api/runs?limit=x")
        (program.data / "rankzero.db").rename(program.data / "gone")
        line = " ".join(psutil.Process(program.process.pid).cmdline())
        program.end()
        assert token not in program.log.read_text()
        assert token not in line
