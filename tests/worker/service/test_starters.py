"""What starts the worker of an installation: systemd where the user lingers, else a process and a line for cron."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.end_to_end.product import wait_for
from tests.virtual_time import VirtualTime
from worker.node.processes import with_arguments
from worker.service.home import Home, write
from worker.service.program import Refused, reachable, status, urls_from_here, wait_for_contact
from worker.service.starters import Detached, Systemd, end_worker, starter

WORK = """
import pathlib, sys, time
from worker.node.processes import take_lock
node = pathlib.Path(sys.argv[1]) / "data/node"
node.mkdir(parents=True, exist_ok=True)
lock = take_lock(node / "lock")
time.sleep(600)
"""
WORKER = """#!/bin/sh
case "$*" in *cli.main*) echo {version} >> {home}/started; exec {python} -c '{work}' {home} "$@" ;; esac
exec {python} "$@"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An installation's folder, on a machine with none of the programs that start something."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    path = tmp_path / "rankzero-node"
    for version in ("1", "2"):
        (path / "versions" / version / "bin").mkdir(parents=True)
    home = Home(path)
    home.switch_to("1")
    return home


def replace(program: str, script: str) -> None:
    """Let the machine have a program, which also notes how it was called."""
    path = Path(os.environ["PATH"].partition(":")[0]) / program
    path.write_text(f'#!/bin/sh\necho {program} "$@" >> {path.parent}/calls\n{script}\n')
    path.chmod(0o755)


def calls() -> list[str]:
    return (Path(os.environ["PATH"].partition(":")[0]) / "calls").read_text().splitlines()


def test_systemd_starts_the_worker_of_a_user_who_lingers(home: Home, tmp_path: Path) -> None:
    replace("systemctl", "")
    replace("loginctl", "echo Linger=yes")
    service = starter(home)
    assert isinstance(service, Systemd) and service.unit == "rankzero-worker.service"
    service.start()
    unit = (tmp_path / ".config/systemd/user/rankzero-worker.service").read_text()
    assert f"ExecStart={home.path}/current/bin/python -P -m worker.service.program run {home.path}\n" in unit
    assert "KillMode=process" in unit and "WantedBy=default.target" in unit and "User=" not in unit
    assert f"ConditionHost={os.uname().nodename}" in unit
    assert calls()[-1] == "systemctl --user restart rankzero-worker.service"
    assert not any("enable-linger" in call for call in calls())
    assert status(home)["service"] == service.sentence
    service.stop()
    assert not service.is_installed() and "systemctl --user disable -q --now rankzero-worker.service" in calls()


def test_lingering_is_asked_for_and_where_it_is_refused_cron_starts_the_worker(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace("systemctl", "")
    replace("loginctl", "echo Linger=no")
    assert isinstance(starter(home), Detached) and "loginctl enable-linger" in calls()
    replace(
        "loginctl",
        f'[ "$1" = enable-linger ] && touch {tmp_path}/lingers; [ -e {tmp_path}/lingers ] && echo Linger=yes',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert isinstance(starter(home), Systemd)


def test_systemd_that_refuses_is_quoted(home: Home) -> None:
    replace("loginctl", "echo Linger=yes")
    replace("systemctl", '[ "$2" = restart ] && { echo "Unit is masked." >&2; exit 1; }; exit 0')
    with pytest.raises(OSError, match=r"restart rankzero-worker\.service failed: Unit is masked\."):
        Systemd(home).start()


def test_crontab_keeps_the_persons_own_lines(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table"
    table.write_text("MAILTO=me\n5 4 * * * backup\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    replace("crontab", f'if [ "$1" = -l ]; then cat {table}; else cat > {table}.new; mv {table}.new {table}; fi')
    odd = Home(tmp_path / "a 100% 'odd' folder")
    for each in (home, odd):
        each.path.mkdir(exist_ok=True)
        service = Detached(each)
        for _ in range(2):
            service._set_crontab(is_listed=True)
        assert service.is_in_crontab() and "by cron" in service.sentence
    lines = table.read_text().splitlines()
    assert lines[:2] == ["MAILTO=me", "5 4 * * * backup"] and len(lines) == 4
    assert lines[3].startswith("@reboot '") and "100\\% '\\''odd'\\'' folder/current/bin/python'" in lines[3]
    for each in (home, odd):
        Detached(each).stop()
    assert table.read_text() == "MAILTO=me\n5 4 * * * backup\n"


@pytest.mark.parametrize(("errors", "is_written"), [("no crontab for me", True), ("cannot fork", False)])
def test_crontab_that_cannot_be_read_stays_as_it_is(home: Home, errors: str, is_written: bool) -> None:
    replace("crontab", f'[ "$1" = -l ] && {{ echo "{errors}" >&2; exit 1; }}; exit 0')
    Detached(home)._set_crontab(is_listed=True)
    assert ("crontab -" in calls()) is is_written


def test_machine_without_cron_says_that_a_reboot_ends_it(home: Home) -> None:
    assert "does not start again after a reboot" in Detached(home).sentence


def test_keeper_starts_the_worker_again_from_the_newest_version(home: Home) -> None:
    for version in ("1", "2"):
        python = home.path / "versions" / version / "bin/python"
        python.write_text(WORKER.format(version=version, home=home.path, python=sys.executable, work=WORK))
        python.chmod(0o755)
    service = Detached(home)
    service.start()
    started = home.path / "started"
    try:
        wait_for(lambda: started.exists() and started.read_text() == "1\n", "the worker")
        wait_for(home.worker_runs, "the worker to run")
        home.switch_to("2")
        service.start()
        wait_for(lambda: started.read_text() == "1\n2\n", "the newer worker")
        wait_for(home.worker_runs, "the newer worker to run")
    finally:
        service.stop()
        assert service.process is not None and service.process.wait(300) == 0
    assert not service.is_installed() and with_arguments(lambda words: str(home.path) in words) == []


def test_process_that_only_names_the_folder_is_not_ended(home: Home) -> None:
    for words in (("supervisor", "--data", str(home.data)), ("keep", f"{home.path}-2"), (str(home.path), "keep")):
        argv = [sys.executable, "-c", "print(flush=True); input()", "worker.service.program", *words]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training:
            assert training.stdout is not None
            training.stdout.readline()
            Detached(home).stop()
            end_worker(home)
            assert training.poll() is None
            training.communicate(b"\n")


def test_older_version_stays_while_a_process_runs_from_it(home: Home) -> None:
    (home.path / "versions/3").mkdir()
    home.switch_to("2")
    argv = [sys.executable, "-c", "input()", f"{home.path}/versions/1/lib"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as training:
        wait_for(lambda: b"versions/1" in Path(f"/proc/{training.pid}/cmdline").read_bytes(), "the process")
        home.remove_unused_versions()
        assert sorted(path.name for path in (home.path / "versions").iterdir()) == ["1", "2"]
        training.communicate(b"\n")
    home.remove_unused_versions()
    assert [path.name for path in (home.path / "versions").iterdir()] == ["2"]


class Health(BaseHTTPRequestHandler):
    """Answers as a dashboard does."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_first_address_that_answers_is_taken_and_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    held = socket.socket()  # to the end, so that nobody else listens there
    held.bind(("127.0.0.1", 0))
    closed = f"http://127.0.0.1:{held.getsockname()[1]}"
    with held, HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("SSH_CONNECTION", "127.0.0.1 4711 10.0.0.2 22")
        assert reachable([closed, f"http://ssh:{server.server_port}"]) == f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        with pytest.raises(Refused, match=rf"cannot reach the dashboard at {closed} \(.*refused\): start the dash"):
            reachable([closed])
    monkeypatch.setenv("SSH_CONNECTION", "fe80::1 4711 fe80::2 22")
    assert list(urls_from_here(["http://ssh:80"])) == ["http://[fe80::1]:80"]


def test_refusal_of_the_worker_is_handed_on(home: Home) -> None:
    refusal = "rankzero worker: the name gpu-1 is taken\n"
    home.log.write_text("rankzero worker: an older refusal\n")
    both = home.log.read_text() + refusal
    time = VirtualTime()
    time.call_after(1.0, lambda: home.log.write_text(both))
    with pytest.raises(Refused, match=r"^the name gpu-1 is taken$"):
        wait_for_contact(home, 1e12, time)


def test_status_shows_no_token(home: Home) -> None:
    (home.data / "node").mkdir(parents=True)
    write(home.data / "node/node.json", '{"node_id": "n1", "name": "gpu-1", "token": "secret"}')
    told = status(home)
    assert (told["node_id"], told["version"], told["runs"]) == ("n1", "1", False) and "secret" not in str(told)
