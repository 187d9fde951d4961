"""The folder of an installation: with which command line its worker starts."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from cli.commands.installation.programs import accounts
from cli.main import run
from worker.service import program
from worker.service.home import Home, worker_command


def test_worker_starts_with_the_accounts_that_nodes_add_was_given(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "worker.json").write_text(json.dumps({"server": "http://here:8765", "slots": None}))
    assert "--run-as" not in worker_command(home)
    entries = accounts(["trainings", "ana=ana_unix"]).entries
    (tmp_path / "worker.json").write_text(json.dumps({"server": "http://here:8765", "run_as": entries}))
    command = worker_command(home)
    given = [command[at + 1] for at, part in enumerate(command) if part == "--run-as"]
    assert given == ["trainings", "ana=ana_unix"]
    assert command[-2] == "--token-file"


def test_join_token_is_its_users_alone_and_gone_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, seen = Home(tmp_path), []

    class FailingStarter:
        def start(self) -> None:
            seen.append((home.join_token.read_text(), home.join_token.stat().st_mode & 0o777))
            raise OSError("no such program")

        def stop(self) -> None: ...

    monkeypatch.setattr(program, "starter", lambda _: FailingStarter())
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"version": "1", "token": "t"})))
    with pytest.raises(OSError, match="no such program"):
        program.start(home)
    assert seen == [("t", 0o600)] and not home.join_token.exists()


def test_nodes_add_refuses_accounts_that_contradict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["nodes", "add", "gpu-1", "--run-as", "one", "--run-as", "two", "--data", str(tmp_path)]) == 2
    assert "--run-as names two accounts for everybody" in capsys.readouterr().err
