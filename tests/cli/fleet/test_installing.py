"""What is done or refused on a host, in one sentence each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.fleet import installing, node_files, scripts
from cli.fleet.host_list import Destination, Machine
from cli.fleet.installing import InstallationPlan, examine, look, uninstall
from cli.fleet.node_files import NodeFiles
from cli.fleet.progress import HostProgress
from cli.fleet.ssh import Answer, HostTrouble, telling_line
from tests.cli.fleet.conftest import FakeHost

FOLDER = ".local/share/rankzero-node"


def test_look_finds_what_there_is(host: FakeHost) -> None:
    seen = host.do(look)
    assert seen.home == str(host.home / FOLDER) and seen.status == {} and seen.glibc >= 17
    assert int(seen.values["free_kb"]) > 0 and list((host.home / FOLDER).iterdir()) == []


@pytest.mark.parametrize(
    ("program", "script", "sentence"),
    [
        ("uname", 'case $1 in -s) echo Darwin ;; *) echo x ;; esac', "it runs Darwin; workers need Linux."),
        ("getconf", "echo glibc 2.12", "its C library is glibc 2.12; workers need glibc 2.17 or newer."),
        ("getconf", "echo musl libc", "its C library is musl libc; workers need glibc 2.17 or newer."),
        ("mkdir", "echo \"mkdir: cannot create directory '$4': Read-only file system\" >&2; exit 1",
         "cannot be made (Read-only file system): name another with --folder."),
        ("chmod", "exit 0", "no program may run from its folder"),
    ],
)  # fmt: skip
def test_host_that_can_have_no_worker_is_refused(host: FakeHost, program: str, script: str, sentence: str) -> None:
    host.replace(program, script)
    with pytest.raises(HostTrouble) as refused:
        host.do(look)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_folder_is_taken_from_the_home_where_it_is_not_absolute(host: FakeHost) -> None:
    for folder, path in (("other/one", host.home / "other/one"), (str(host.folder / "x"), host.folder / "x")):
        assert host.do(look, Machine(Destination("gpu-1"), None, folder)).home == str(path)


def test_folder_with_files_of_the_person_is_refused(host: FakeHost) -> None:
    (host.home / "papers").touch()
    for folder in ("~/", str(host.home)):
        with pytest.raises(HostTrouble, match=rf"its folder {host.home} has other files, and would be removed"):
            host.do(look, Machine(Destination("gpu-1"), None, folder))
    assert [path.name for path in host.home.iterdir()] == ["papers"]
    (host.home / "lock").touch()
    assert host.do(look, Machine(Destination("gpu-1"), None, "~/")).home == str(host.home)


def test_home_that_several_machines_share_gets_a_folder_for_each(host: FakeHost) -> None:
    host.replace("stat", "echo nfs")
    host.replace("uname", "case $1 in -s) echo Linux ;; -n) echo gpu-7 ;; *) echo x86_64 ;; esac")
    assert host.do(look).home == str(host.home / f"{FOLDER}-gpu-7")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> NodeFiles:
    """What hosts are brought, made once."""
    return NodeFiles(tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("work"))


def plan_for(files: NodeFiles, **changes: object) -> InstallationPlan:
    return InstallationPlan(files, ["http://10.0.0.1:8765"], **({"nodes": {}, "token": "t"} | changes))


@pytest.mark.parametrize(
    ("program", "script", "sentence"),
    [
        ("df", "echo head; echo disk 1 2 3000 4% /", "2 MiB are free in its folder"),
        ("uname", 'case $1 in -s) echo Linux ;; -n) echo gpu-1 ;; *) echo riscv64 ;; esac', "its processor is riscv64"),
        ("gzip", "cat > /dev/null; echo \"gzip: No space left on device\" >&2; exit 1",
         "uv cannot be put there: gzip: No space left on device."),
    ],
)  # fmt: skip
def test_installation_that_cannot_be_is_refused(
    host: FakeHost, files: NodeFiles, program: str, script: str, sentence: str
) -> None:
    host.replace(program, script)
    plan, progress = plan_for(files), HostProgress(Machine(Destination("gpu-1")))
    with pytest.raises(HostTrouble) as refused:
        host.do(lambda connection: installing.add(connection, plan, progress))
    assert sentence in str(refused.value) and "\n" not in str(refused.value)
    assert not list((host.home / FOLDER).glob("versions/*"))


def test_aarch64_host_gets_a_uv_of_its_kind(host: FakeHost, files: NodeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    async def download(argv: list[str], failure: str) -> None:
        asked.append(argv)
        raise HostTrouble(f"{failure}: no route to host.")

    monkeypatch.setattr(node_files, "_run", download)
    host.replace("uname", "case $1 in -s) echo Linux ;; -n) echo gpu-1 ;; *) echo aarch64 ;; esac")
    plan, progress = plan_for(files), HostProgress(Machine(Destination("gpu-1")))
    with pytest.raises(HostTrouble, match=r"uv for its processor \(aarch64\) cannot be downloaded here: no route"):
        host.do(lambda connection: installing.add(connection, plan, progress))
    assert "aarch64-manylinux_2_17" in asked[0] and f"uv=={plan.files.uv_version}" in asked[0]


STATUS = {"version": "1", "node_id": "n1", "name": "gpu-1", "server": "http://10.0.0.9:8765", "runs": True,
          "silent_s": 2.0, "service": "as a detached process", "log": ["a line"]}  # fmt: skip


def installed(host: FakeHost, **changes: object) -> None:
    """Let an installation be there, with this status."""
    program = host.home / FOLDER / "current/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{json.dumps(STATUS | changes)}'\n")
    program.chmod(0o755)


def test_node_of_another_dashboard_is_left_alone(host: FakeHost, files: NodeFiles) -> None:
    installed(host)
    plan, progress = plan_for(files), HostProgress(Machine(Destination("gpu-1")))
    with pytest.raises(HostTrouble, match=r"another dashboard \(http://10\.0\.0\.9:8765\).*remove gpu-1 --uninstall"):
        host.do(lambda connection: installing.add(connection, plan, progress))


def test_second_installation_of_a_connected_node_is_refused_before_it_begins(host: FakeHost, files: NodeFiles) -> None:
    host.replace("uname", "case $1 in -s) echo Linux ;; -n) echo gpu-1 ;; *) echo x86_64 ;; esac")
    plan, progress = plan_for(files, names=["gpu-1"]), HostProgress(Machine(Destination("gpu-1")))
    with pytest.raises(HostTrouble, match="a node named gpu-1 is connected already"):
        host.do(lambda connection: installing.add(connection, plan, progress))
    assert list((host.home / FOLDER).iterdir()) == []


def test_node_that_is_there_already_costs_one_look(host: FakeHost, files: NodeFiles) -> None:
    plan, progress = plan_for(files, nodes={"n1": True}), HostProgress(Machine(Destination("gpu-1")))
    installed(host, version=plan.files.version)
    said = host.do(lambda connection: installing.add(connection, plan, progress))
    assert said == "has this version already, as a detached process"
    assert (progress.node, progress.node_id) == ("gpu-1", "n1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slots": 4, "run_as": ["ana=a", "train"]}, "has now --slots 4 --run-as ana=a --run-as train, runs detached"),
        ({"python": "/opt/python", "slots": None, "run_as": []}, "has now --python /opt/python, runs detached"),
        ({"slots": 2, "run_as": []}, "has this version already, as a detached process"),
        ({}, "has this version already, as a detached process"),
    ],
)
def test_options_of_a_node_that_is_there_are_changed(
    host: FakeHost, files: NodeFiles, options: dict[str, object], said: str
) -> None:
    plan = plan_for(files, nodes={"n1": True}, options=options)
    installed(host, version=plan.files.version, options={"slots": 2, "python": "/usr/bin/python3"})
    request = host.home / "request"
    switched = host.home / FOLDER / "versions" / plan.files.version / "bin/python"
    switched.parent.mkdir(parents=True)
    answer = {"name": "gpu-1", "node_id": "n1", "service": "detached"}
    switched.write_text(f"#!/bin/sh\ncat > {request}\nprintf '%s\\n' '{json.dumps(answer)}'\n")
    switched.chmod(0o755)
    progress = HostProgress(Machine(Destination("gpu-1")))
    assert host.do(lambda connection: installing.add(connection, plan, progress)) == said
    asked = json.loads(request.read_text()) if request.exists() else {}
    assert asked.get("options", {}) == (options if "now" in said else {}) and "token" not in asked


def test_upgrade_needs_an_installation(host: FakeHost, files: NodeFiles) -> None:
    plan, progress = plan_for(files, token=""), HostProgress(Machine(Destination("gpu-1")))
    with pytest.raises(HostTrouble, match="no installation of `rankzero nodes add` there to upgrade"):
        host.do(lambda connection: installing.add(connection, plan, progress))


def test_doctor_names_what_is_wrong(host: FakeHost) -> None:
    installed(host, runs=False, log=["rankzero worker: refused"], silent_because="timed out")
    checks = host.do(lambda connection: examine(connection, "2"))
    assert [check.check for check in checks if not check.ok] == ["installed", "worker", "dashboard"]
    assert "`rankzero nodes upgrade`" in checks[2].message and checks[4].message.endswith("is silent: timed out")
    assert "`rankzero nodes add me@gpu-1` starts it" in checks[3].message and "refused" in checks[3].message


def test_half_done_installation_is_removed(host: FakeHost) -> None:
    (host.home / FOLDER / "cache").mkdir(parents=True)
    (host.home / FOLDER / "lock").touch()
    said = host.do(lambda connection: uninstall(connection, HostProgress(Machine(Destination("gpu-1")))))
    assert said == f"nothing is installed in its folder {host.home / FOLDER}"
    assert not (host.home / FOLDER).exists()


UV = """#!/bin/sh
case "$1 $2" in
--version*) echo "uv 9.9.9" ;;
"python install") mkdir -p "$6/cpython-3.12" ;;
venv*)
    [ -d "$UV_PYTHON_INSTALL_DIR/cpython-3.12" ] || { echo "error sending request for url (https://x)" >&2; exit 2; }
    mkdir -p "$7/bin"
    cp {folder}/python "$7/bin/python" ;;
"pip install") case "$*" in *--find-links*) ls wheels/*.whl ;; *) echo "Failed to fetch: x" >&2; exit 1 ;; esac ;;
esac
"""


PYTHON = """#!/bin/sh
[ "$1" = -c ] && echo 3.12
case "$*" in *" start "*) cat > {folder}/request; cat {folder}/answer ;; esac
"""


def test_host_without_python_and_internet_gets_both_from_here(
    host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv, python = tmp_path / "uv", tmp_path / "python"
    for program, script in ((uv, UV), (python, PYTHON)):
        program.write_text(script.replace("{folder}", str(tmp_path)))
        program.chmod(0o755)
    (tmp_path / "answer").write_text(json.dumps({"name": "gpu-1", "node_id": "n1", "service": "as a unit"}) + "\n")
    monkeypatch.setattr(node_files, "_own_uv", lambda: (uv, "9.9.9"))
    (tmp_path / "work").mkdir()
    files, downloads = NodeFiles(tmp_path / "cache", tmp_path / "work"), []

    async def download(target: node_files.Target, folder: Path) -> None:
        downloads.append(target)
        folder.mkdir()
        (folder / "rankzero-0-py3-none-any.whl").touch()

    monkeypatch.setattr(files, "_download", download)
    plan, progress, steps = plan_for(files), HostProgress(Machine(Destination("gpu-1"))), []
    progress.changed = lambda told: steps.append(told.step)
    said = host.do(lambda connection: installing.add(connection, plan, progress))
    assert (said, progress.node, progress.node_id) == ("runs as a unit", "gpu-1", "n1")
    assert steps == ["looking", "bringing uv", "installing", "bringing Python", "bringing wheels", "starting"]
    assert [(target.python, target.machine) for target in downloads] == [("3.12", os.uname().machine)]
    request = json.loads((tmp_path / "request").read_text())
    assert request == {
        "version": files.version,
        "urls": ["http://10.0.0.1:8765"],
        "options": {},
        "was_removed": False,
        "token": "t",
    }
    left = sorted(path.name for path in (host.home / FOLDER).iterdir())
    assert "wheels" not in left and (host.home / FOLDER / "versions" / files.version).is_dir()


def test_proxy_that_is_away_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        port = taken.getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        done = subprocess.run([sys.executable, "-c", scripts.ASK_PROXY], capture_output=True, text=True, check=False)
    assert done.returncode and "secret" not in done.stderr
    assert telling_line(done.stderr).startswith(f"its proxy 127.0.0.1:{port} (http_proxy) does not answer: ")
    assert installing.reaches_nothing(Answer(12, {}, done.stderr))
    pip = (
        "ERROR: Could not find a version\nERROR: No matching distribution found for uv==0\nERROR: ResolutionImpossible"
    )
    assert telling_line(pip) == "No matching distribution found for uv==0"


def test_removed_node_joins_under_a_new_identity(host: FakeHost, files: NodeFiles) -> None:
    plan = plan_for(files, nodes={"n2": True})
    installed(host, version=plan.files.version, server="http://10.0.0.1:8765", node_id="n1")
    for node_id, was_removed in (("n1", True), ("n2", False), (None, False)):
        seen = installing.Look({"home": str(host.home), "name": "gpu-1", "status": STATUS | {"node_id": node_id}})
        assert installing.start_request(Destination("gpu-1"), seen, plan, is_member=False)["was_removed"] is was_removed


def test_certificates_are_brought_where_some_are_named(files: NodeFiles) -> None:
    seen = installing.Look({"home": "/h", "name": "gpu-1", "status": {}})
    requests = [
        installing.start_request(Destination("gpu-1"), seen, plan_for(files, certificates=text), is_member=False)
        for text in ("", "PEM")
    ]
    assert "certificates" not in requests[0] and requests[1]["certificates"] == "PEM"
