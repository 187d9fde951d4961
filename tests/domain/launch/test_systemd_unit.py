"""The systemd unit leaves trainings alone, shows no token, and is one that systemd takes."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main
from domain.launch.systemd_unit import NAME, unit, user_unit

ODD = ["/opt/my env/bin/rankzero", "worker", "--label", "room=b12", "--name", 'a "b" 100% $HOME \\ c']


def test_an_upgrade_of_the_worker_leaves_trainings_alone():
    service = parsed(unit(ODD, "ana"))["Service"]
    assert (service["KillMode"], service["OOMPolicy"], service["Restart"]) == (
        "process",
        "continue",
        "always",
    )
    assert (service["User"], service["EnvironmentFile"]) == ("ana", "/etc/rankzero/worker.env")


def test_words_reach_the_worker_as_they_were_typed():
    command = parsed(unit(ODD, "ana"))["Service"]["ExecStart"]
    assert command.startswith('"/opt/my env/bin/rankzero" worker --label room=b12 --name ')
    assert command.endswith('"a \\"b\\" 100%% $$HOME \\\\ c"')


def test_the_command_prints_it_for_this_machine_without_a_token(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("RANKZERO_TOKEN", "rzjoin-12345678-secret")
    monkeypatch.delenv("RANKZERO_URL", raising=False)
    assert main.run(["worker", "--print-unit", "--data", str(tmp_path), "--slots", "2"]) == 0
    said = capsys.readouterr().out
    program = Path(sys.executable).with_name("rankzero")
    assert f"ExecStart={program} worker --data {tmp_path} --slots 2\n" in said
    assert "secret" not in said


@pytest.mark.parametrize("manager", ["--system", "--user"])
def test_systemd_takes_it(tmp_path, manager):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    file, command = tmp_path / NAME, [shutil.which("true") or "/bin/true", *ODD[1:]]
    file.write_text(unit(command, "root") if manager == "--system" else user_unit(command, "gpu-1"))
    done = subprocess.run(
        ["systemd-analyze", manager, "verify", "--man=no", str(file)],
        capture_output=True, text=True, timeout=300, env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if NAME in line]
    assert (done.returncode, complaints) == (0, [])


def test_unit_of_a_users_own_systemd_names_no_user_and_one_host():
    written = parsed(user_unit(ODD, "gpu-1"))
    assert (written["Unit"]["ConditionHost"], written["Install"]["WantedBy"]) == ("gpu-1", "default.target")
    assert written["Service"]["KillMode"] == "process" and "User" not in written["Service"]


def parsed(text: str) -> configparser.ConfigParser:
    unit_file = configparser.ConfigParser(interpolation=None, strict=True)
    unit_file.optionxform = str  # type: ignore[assignment,method-assign]
    unit_file.read_string(text)
    return unit_file
