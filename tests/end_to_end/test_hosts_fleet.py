"""Many machines over ssh: without an index, through a jump host, killed midway, full, with the wrong key; upgraded and
examined while they train, and left as they were."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import packages
from tests.end_to_end.hosts import Host, why_not
from tests.end_to_end.product import WAIT_S, wait_for
from tests.end_to_end.ssh_hosts import USER, USER_ID, SshHosts, nodes_of, why_no_sshd, write_index

pytestmark = pytest.mark.long

TRAINING = """
import pathlib, time
print("step", flush=True)
while not pathlib.Path({stop!r}).exists():
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_index(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[SshHosts]:
    if reason := why_not() or why_no_sshd():
        pytest.skip(reason)
    cluster = SshHosts(4, tmp_path_factory.mktemp("hosts"))
    try:
        cluster.start()
        cluster.serve_index(wheels)
        yield cluster
    finally:
        cluster.clean_up()


@pytest.fixture
def hosts(cluster: SshHosts) -> Iterator[SshHosts]:
    """The cluster; after a test its hosts are as nothing had ever been installed there."""
    yield cluster
    for run in cluster.get("/api/runs"):
        if run["ended_at"] is None:
            cluster.request("POST", f"/api/runs/{run['id']}/stop")
            cluster.wait_state(run["id"])
    for node in cluster.get("/api/nodes"):
        assert cluster.request("DELETE", f"/api/nodes/{node['id']}").status_code == 200
    for host in cluster.hosts[1:]:
        host.kill(of_user(host))
        shutil.rmtree(cluster.home_of(host), ignore_errors=True)
        cluster.on(host, "rm", "-f", f"/var/spool/cron/crontabs/{USER}")


def of_user(host: Host) -> list[psutil.Process]:
    """The processes of the user on a host."""
    return [process for process in host.processes() if process.uids().real == USER_ID]


def test_three_hosts_join_one_of_them_without_an_index(hosts: SshHosts, wheels: Path) -> None:
    offline = hosts[3]
    settings = offline.home / "home/.config/uv/uv.toml"
    told = settings.read_text()
    settings.write_text(told.replace("9000", "9999"))
    (hosts[1].home / "home/.bashrc").write_text("echo Welcome to host1; echo 'rankzero-x trouble no'\n")
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    try:
        code, done, errors = hosts.add("host[1-3]", env=pip)
        assert (code, [host["state"] for host in done]) == (0, ["joined"] * 3), (done, errors)
        assert nodes_of(hosts) == ["host1", "host2", "host3"]
        assert all("by cron" in host["message"] for host in done)
        seconds = [host["seconds"] for host in done]
        code, again, errors = hosts.add("host[1-3]")
        assert (code, [host["state"] for host in again]) == (0, ["joined"] * 3), (again, errors)
        assert all("already" in host["message"] for host in again)
        print("first", seconds, "again", [host["seconds"] for host in again])
    finally:
        settings.write_text(told)
        (hosts[1].home / "home/.bashrc").unlink()
    hosts[1].kill(of_user(hosts[1]))  # as a reboot does
    line = run_as(hosts[1], "crontab -l").split("@reboot ", 1)[1]
    hosts[1].start("setpriv", f"--reuid={USER_ID}", "--clear-groups", "sh", "-c", line)
    wait_for(lambda: hosts[1].find("worker"), "the worker of host1 to be back")


def run_as(host: Host, command: str) -> str:
    """Run a command of the user on a host; returns what it printed."""
    enter = ["nsenter", "--target", str(host.pid), "--net", "--mount", "--pid", "--uts"]
    argv = [*enter, "setpriv", f"--reuid={USER_ID}", "--clear-groups", "sh", "-c", command]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_host_killed_in_mid_install_is_taken_up_again(hosts: SshHosts) -> None:
    command = hosts.rankzero("nodes", "add", "--json", "host1", "host2")
    home = hosts.home_of(hosts[1])
    wait_for(lambda: list(home.glob("versions/*.new")), "the installation to be under way")
    hosts[1].kill(of_user(hosts[1]))
    command.kill()
    command.communicate()
    assert not (home / "current").exists()
    code, done, errors = hosts.add("host1", "host2")
    assert (code, [host["state"] for host in done]) == (0, ["joined"] * 2), (done, errors)
    assert not list(home.glob("versions/*.new"))
    assert hosts.document("nodes", "remove", "host1")[:2] == (0, {"name": "host1"})
    code, (back,), errors = hosts.add("host1")
    assert (code, back["state"]) == (0, "joined"), (back, errors, hosts.tail())
    assert nodes_of(hosts) == ["host1", "host2"]
    assert hosts.document("nodes", "remove", "host1")[0] == 0
    code, gone, errors = hosts.document("nodes", "remove", "host1", "--uninstall")
    assert (code, gone["uninstall_result"]["state"]) == (0, "removed"), (gone, errors)
    assert not home.exists()


def test_two_commands_at_once_make_one_node(hosts: SshHosts) -> None:
    commands = [hosts.rankzero("nodes", "add", "--json", "--slots", "1", "host1") for _ in range(2)]
    said = [command.communicate(timeout=300)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], said
    assert nodes_of(hosts) == ["host1"] and len(hosts.get("/api/nodes")) == 1
    assert len(hosts[1].find("worker.service.program", "keep")) == 1


def test_full_disk_is_said_before_anything_is_installed(hosts: SshHosts) -> None:
    share = hosts[1].home / "home/.local/share"
    share.mkdir(parents=True, exist_ok=True)
    os.chown(share, USER_ID, USER_ID)
    hosts.on(hosts[1], "mount", "-t", "tmpfs", "-o", f"size=8m,uid={USER_ID}", "none", f"/home/{USER}/.local/share")
    try:
        code, (host,), _ = hosts.add("host1")
    finally:
        hosts.on(hosts[1], "umount", "--lazy", f"/home/{USER}/.local/share")
    assert (code, host["state"]) == (1, "failed")
    assert "MiB are free" in host["message"] and "--folder" in host["message"]


def test_host_key_that_is_wrong_or_unknown_is_refused_or_asked_about(hosts: SshHosts) -> None:
    known = hosts.person / "known_hosts"
    right = known.read_text()
    try:
        lines = right.splitlines(keepends=True)
        known.write_text(lines[0].split(" ", 1)[0] + " " + lines[1].split(" ", 1)[1])
        code, (wrong, unknown), _ = hosts.add("host1", "host2")
        assert (code, wrong["state"], unknown["state"]) == (1, "failed", "failed")
        assert "not the one in known_hosts" in wrong["message"] and "ssh-keygen -R" in wrong["message"]
        assert "not known here yet (ssh-ed25519 SHA256:" in unknown["message"]
        known.write_text(lines[0])
        said = asked(hosts, "nodes", "add", "host2")
        assert "key fingerprint is SHA256:" in said and "1 host" not in said
        assert nodes_of(hosts) == ["host2"]
        assert hosts[2].address in known.read_text()
        known.write_text(lines[1])
        said = asked(hosts, "nodes", "add", "host2", "--jump", "host1")
        assert said.index("not known here yet") < said.index("continue connecting")  # not while the table is shown
    finally:
        known.write_text(right)


def asked(hosts: SshHosts, *arguments: str) -> str:
    """Run a command of the person in a terminal, say yes to its question, and return what it printed."""
    ours, theirs = pty.openpty()
    try:
        command = hosts.rankzero(*arguments, terminal=theirs)
        os.close(theirs)
        said = ""
        while "continue connecting" not in said:
            said += os.read(ours, 65536).decode(errors="replace")
        os.write(ours, b"yes\n")
        while True:
            try:
                said += os.read(ours, 65536).decode(errors="replace")
            except OSError:
                break
        assert command.wait(WAIT_S) == 0, said
        return said
    finally:
        os.close(ours)


def test_upgrade_leaves_trainings_alone_and_doctor_finds_what_is_wrong(hosts: SshHosts, tmp_path: Path) -> None:
    code, done, errors = hosts.add("host2", "--jump", "host1")
    assert (code, done[0]["state"]) == (0, "joined"), (done, errors)
    stop = hosts[2].home / "home/stop"
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(stop=f"/home/{USER}/stop"))
    spec = {"launcher": "python", "strategy": "single", "gpus_per_node": 1, "python": hosts.give_torch(hosts[2])}
    run_id = hosts.launch(script, **spec)
    hosts.wait_state(run_id, "running")
    (training,) = [p for p in hosts[2].of_run(run_id) if p.cmdline()[-1].endswith("train.py")]
    source = tmp_path / "newer"
    for part in packages.PARTS:
        shutil.copytree(packages.ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "cli/newer.py").write_text('"""One module more."""\n')
    newer = {"PYTHONPATH": str(source)}
    code, node, _ = hosts.document("nodes", "doctor", "host2", env=newer)
    assert code == 1 and [check["check"] for check in node["checks"] if not check["ok"]] == ["installed"], node
    code, (upgraded,), errors = hosts.document("nodes", "upgrade", env=newer)
    assert (code, upgraded["upgrade_result"]["state"]) == (0, "upgraded"), (upgraded, errors)
    code, node, _ = hosts.document("nodes", "doctor", "host2", env=newer)
    assert code == 0, node
    assert training.is_running()
    code, refused, _ = hosts.document("nodes", "remove", "host2", "--uninstall")
    assert code == 1 and run_id in refused["uninstall_result"]["message"]
    stop.touch()
    assert hosts.wait_state(run_id)["state"] == "succeeded"
    code, removed, errors = hosts.document("nodes", "remove", "host2", "--uninstall")
    assert (code, removed["uninstall_result"]["state"]) == (0, "removed"), (removed, errors)
    assert hosts.get("/api/nodes") == [] and not hosts.home_of(hosts[2]).exists()
    wait_for(lambda: not of_user(hosts[2]), "no process to be left")
    assert run_as(hosts[2], "crontab -l || true") == ""
