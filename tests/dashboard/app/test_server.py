"""The dashboard as a program: where it listens, what it leaves behind, how it ends."""

from __future__ import annotations

import contextlib
import signal
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from dashboard.api.workers.attempts import LONGEST_WAIT_S
from domain.messages import NodeFacts
from tests.dashboard.program import Program, dashboard
from tests.dashboard.running import patient
from worker.session.client import Client
from worker.session.failures import ServerAway

FACTS = NodeFacts(name="n0", instance_id="i", hostname="h", address="10.0.0.1", devices=[])


def test_it_listens_here_alone_and_says_where(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        listening = [c.laddr for c in psutil.Process(program.process.pid).net_connections() if c.status == "LISTEN"]
        assert listening == [("127.0.0.1", program.about["port"])]
        assert program.about["url"] == f"http://127.0.0.1:{program.about['port']}"
        assert program.get("/").status_code == 200
        modes = modes_in(program.data)
        assert set(modes.values()) == {0o600}, modes
        assert stat.S_IMODE(program.data.stat().st_mode) == 0o700


@pytest.mark.real
def test_all_ipv6_addresses_are_all_ipv4_addresses_as_well(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data", "--host", "::") as program:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, program.about["port"]), timeout=30):
                pass


def modes_in(folder: Path) -> dict[str, int]:
    """The modes of the files in it; what is just being replaced may be gone while they are looked at."""
    modes = {}
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                modes[path.name] = stat.S_IMODE(about.st_mode)
    return modes


@pytest.mark.real
def test_it_ends_without_waiting_for_those_who_wait(tmp_path: Path) -> None:
    with dashboard(tmp_path / "data") as program:
        url, bearer = program.about["url"], {"Authorization": f"Bearer {program.token}"}
        client = patient(Client(url))
        join = (program.data / "join-token").read_text().strip()
        client.register(FACTS, None, join)
        version = client.desired_state(None, 0).version
        answers: list[Any] = []

        def poll() -> None:
            try:
                answers.append(client.desired_state(version, LONGEST_WAIT_S))
            except ServerAway as error:
                answers.append(error)

        polling, began = threading.Thread(target=poll), time.monotonic()
        polling.start()
        live, pages = (url.replace("http", "ws") + path for path in ("/api/live?run=x", "/_stcore/stream"))
        with (
            connect(live, additional_headers=bearer, proxy=None, open_timeout=60),
            connect(
                pages, additional_headers=bearer, proxy=None, open_timeout=60, subprotocols=[Subprotocol("streamlit")]
            ),
            httpx2.stream("GET", f"{url}/api/docs", headers=bearer, trust_env=False, timeout=60),
        ):
            program.end()
            took_s = time.monotonic() - began
        polling.join()
        client.close()
        assert program.process.returncode == 0
        assert took_s < LONGEST_WAIT_S, program.log.read_text()
        assert not (program.data / "server.json").exists()
        assert len(answers) == 1


@pytest.mark.real
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


@pytest.mark.real
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
        httpx2.get(f"{url}/run?token={token}", trust_env=False, timeout=60)
        httpx2.get(f"{url}/run?token={token}x", trust_env=False, timeout=60)
        httpx2.post(f"{url}/login", data={"token": token + "y"}, trust_env=False, timeout=60)
        program.get("/api/runs", Cookie=f"x={token}")
        program.get("/api/runs?limit=x")
        for path in (f"/shared/{token}", f"/invite/{token}", f"/api/runs/{token}"):
            program.get(path)
        (program.data / "rankzero.db").rename(program.data / "gone")
        line = " ".join(psutil.Process(program.process.pid).cmdline())
        program.end()
        assert token not in program.log.read_text()
        assert token not in line
