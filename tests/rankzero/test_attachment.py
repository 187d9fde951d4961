"""What a watched process says to people, and what it does where a person asks for its end, on virtual time."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero.attachment import Attachment
from rankzero.ends import End
from tests.virtual_time import VirtualTime

RUNNING = {"state": "running", "exit_code": None, "stop_requested_at": None, "ended_at": None}


class Folder:
    """The folder of a watched process, whose companion is the test."""

    def __init__(self, path: Path, clock: VirtualTime) -> None:
        self.path, self.clock = path, clock
        (path / "attempt" / "logs").mkdir(parents=True)

    def attach(self, *, is_notebook: bool = True) -> Attachment:
        """Without a probe: it would observe the tests themselves."""
        answer = {"folder": str(self.path), "run_id": "proposed01", "rank": 0, "probe": str(self.path / "no-probe")}
        answer |= {"env": {"RANKZERO_RUN_ID": "proposed01"}, "state": RUNNING, "is_last": False}
        return Attachment(answer, is_notebook=is_notebook, clock=self.clock)

    def say(self, **companion: Any) -> None:
        (self.path / "companion.json").write_text(json.dumps(companion))

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "attempt" / "supervisor.json").read_text()))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with VirtualTime() as clock:
        yield Folder(tmp_path / "watched", clock)


@pytest.fixture
def attached(folder: Folder, capsys: pytest.CaptureFixture[str]) -> Iterator[Attachment]:
    attachment = folder.attach()
    attachment.begin()
    capsys.readouterr()
    yield attachment
    attachment.end(End())


def test_a_run_that_appears_soon_is_announced_once(folder: Folder, attached: Attachment, capsys):
    assert (attached.folder.run_id, attached.url()) == ("proposed01", "")
    folder.say(state="registered", url="http://here/run?id=given00001", message="")
    (folder.path / "registration.json").write_text(json.dumps({"assignment": {"run_id": "given00001"}}))
    assert (attached.folder.run_id, attached.url()) == ("given00001", "http://here/run?id=given00001")
    attached._began_at = folder.clock.now()
    folder.clock.pause(5.0)
    assert capsys.readouterr().err == "rankzero: watching as given00001, http://here/run?id=given00001\n"


def test_a_run_that_appears_late_is_not_announced(folder: Folder, attached: Attachment, capsys):
    folder.clock.pause(10.0)
    folder.say(state="registered", url="http://here/run?id=proposed01", message="")
    folder.clock.pause(10.0)
    assert capsys.readouterr().err == ""


def test_trouble_with_the_server_is_said_once(folder: Folder, attached: Attachment, capsys):
    folder.say(state="away", url="", message="")
    folder.clock.pause(10.0)
    assert capsys.readouterr().err == ""
    folder.say(state="refused", url="", message="The token has expired.")
    folder.clock.pause(60.0)
    said = capsys.readouterr().err
    assert said == f"rankzero: The token has expired. What is recorded stays in {folder.path}.\n"


def test_the_address_is_not_awaited_where_the_server_is_away(folder: Folder, attached: Attachment):
    folder.say(state="away", url="", message="It does not answer.")
    before = folder.clock.now()
    assert attached.url() == ""
    assert folder.clock.now() == before


def test_stop_interrupts_a_notebook_once_and_never_kills_it(folder: Folder, attached: Attachment):
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        (folder.path / "attempt" / "stop").write_text("5")
        folder.clock.pause(600.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT]
    assert folder.state["state"] == "stopping"
    asked_at = folder.state["stop_requested_at"]
    attached.end(End(1))
    assert (folder.state["state"], folder.state["stop_requested_at"]) == ("ended", asked_at)


def test_an_end_is_written_once_the_disk_has_room(folder: Folder, attached: Attachment):
    blocked = folder.path / "attempt" / ".supervisor.json.tmp"
    blocked.mkdir()
    attached.end(End(3))
    assert not (folder.path / "attempt" / "supervisor.json").exists()
    blocked.rmdir()
    folder.clock.pause(2.0)
    assert (folder.state["state"], folder.state["exit_code"]) == ("ended", 3)


def test_the_first_end_counts_and_undoes_the_environment(folder: Folder, attached: Attachment):
    assert os.environ["RANKZERO_RUN_ID"] == "proposed01"
    attached.end(End(1, "Traceback\n"))
    attached.end(End(0))
    assert (folder.state["exit_code"], attached.is_live) == (1, False)
    assert "RANKZERO_RUN_ID" not in os.environ
    assert (folder.path / "attempt" / "logs" / "rank0.err").read_text().endswith("Traceback\n")
