"""A dashboard that takes long to start, as on a busy machine, is waited for."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from cli.terminal import CommandFailed
from cli.up import parent
from cli.up.parent import Parent, Plan
from tests.end_to_end.product import free_port


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parent:
    """One whose dashboard is late at once."""
    monkeypatch.setattr(parent, "LATE_AFTER_S", 0.1)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return Parent(Plan(data, has_worker=False), free_port())


@pytest.mark.real
def test_a_late_dashboard_is_said_to_start_and_serves(up: Parent, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert up._await_dashboard()
    finally:
        up.stop()
    assert "The dashboard is still starting; its log is" in capsys.readouterr().out
    assert not up.dashboard.is_running


def test_one_that_never_answers_is_given_up(up: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "READY_WITHIN_S", 0.1)
    try:
        with pytest.raises(CommandFailed, match=r"has not answered within .* minutes; its log is .*dashboard\.log\."):
            up._await_dashboard()
    finally:
        up.stop()


def test_the_port_of_a_killed_dashboard_that_is_still_there_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as held:
        about = {"url": f"http://127.0.0.1:{port}", "pid": os.getpid()}
        (tmp_path / "server.json").write_text(json.dumps(about))
        monkeypatch.setattr(parent, "PORT_PATIENCE_S", 0.0)
        monkeypatch.setattr(parent.time, "sleep", lambda _: held.close())
        assert parent.free_port(Plan(tmp_path, port=port)) == port
