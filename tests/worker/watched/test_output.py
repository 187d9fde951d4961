"""Output is copied at once, whatever becomes of the logs."""

from __future__ import annotations

import os
import threading

import pytest

from worker.watched import output
from worker.watched.output import LogWriter, Output


@pytest.fixture
def pipes():
    """Three pipes: of our own output, our errors, and one that stands for a disk that hangs."""
    made = [os.pipe() for _ in range(3)]
    yield made
    for pair in made:
        for descriptor in pair:
            os.close(descriptor)


def test_a_disk_that_hangs_holds_up_no_output(pipes, monkeypatch):
    monkeypatch.setattr(output, "DISK_LIMIT_S", 0.01)
    (out_read, out), (_, err), (_, hanging) = pipes
    copied = Output(hanging, hanging, out, err)
    write = os.dup(copied.out.command_end)
    copied.start()
    given = bytes(range(256)) * 10_000  # much more than the pipes hold

    def command() -> None:
        with os.fdopen(write, "wb") as file:
            file.write(given)

    threading.Thread(target=command).start()
    got = b""
    while len(got) < len(given):
        got += os.read(out_read, 65536)
    assert got == given
    while not copied.end():
        pass


def test_what_waits_for_a_disk_is_limited(monkeypatch, pipes):
    monkeypatch.setattr(output, "MOST_WAITING_BYTES", 10)
    read, write = pipes[0]
    logs = LogWriter()
    logs.write(write, b"12345678")
    logs.write(write, b"left out")
    logs.write(write, b"9")
    logs.start()
    logs.close(60.0)
    logs.write(write, b"too late")
    assert os.read(read, 100) == b"123456789"
