"""Ends of what is watched, and the copy of an output."""

from __future__ import annotations

import io
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankzero.ends import CellEnd, End, ProcessEnd, end_by
from rankzero.output import Copied


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (None, End(0)),
        (SystemExit(), End(0)),
        (SystemExit(0), End(0)),
        (SystemExit(4), End(4)),
        (SystemExit(256 + 7), End(7)),
        (SystemExit("wrong"), End(1)),
        (KeyboardInterrupt(), End(128 + signal.SIGINT, is_stopped=True)),
        (ValueError("no"), End(1, "ValueError: no\n")),
    ],
)
def test_an_exception_is_an_exit_code(error: BaseException | None, end: End):
    assert end_by(error) == end


class Events:
    """Callbacks as IPython keeps them."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Any]] = {"post_run_cell": []}

    def register(self, name: str, callback: Any) -> None:
        self.callbacks[name].append(callback)

    def unregister(self, name: str, callback: Any) -> None:
        self.callbacks[name].remove(callback)

    def run_cell(self, result: Any) -> None:
        for callback in self.callbacks["post_run_cell"][:]:
            callback(result)


def test_only_the_running_cell_counts():
    ends: list[BaseException | None] = []
    shell = SimpleNamespace(events=Events())
    CellEnd(shell, ends.append)
    failure = ValueError("no")
    shell.events.run_cell(SimpleNamespace(error_before_exec=None, error_in_exec=failure))
    shell.events.run_cell(SimpleNamespace(error_before_exec=None, error_in_exec=None))
    assert ends == [failure]


def test_a_cancelled_cell_was_stopped():
    ends: list[BaseException | None] = []
    shell = SimpleNamespace(events=Events())
    CellEnd(shell, ends.append)
    shell.events.run_cell(None)
    assert [end_by(error).is_stopped for error in ends] == [True]


def test_a_thread_that_exits_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch):
    ends: list[BaseException | None] = []
    monkeypatch.setattr(sys, "exit", sys.exit)
    before = sys.exit, sys.excepthook
    end = ProcessEnd(ends.append, lambda: None)

    def leave() -> None:
        with suppress(SystemExit):
            sys.exit(3)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    end._at_exit()
    end.undo()
    assert ends == [None]
    assert (sys.exit, sys.excepthook) == before


def test_who_changed_the_hooks_meanwhile_keeps_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    end = ProcessEnd(lambda error: None, lambda: None)
    other = sys.excepthook = lambda *_: None
    end.undo()
    assert sys.excepthook is other


def test_an_output_is_copied_until_it_is_closed(tmp_path: Path):
    stream, file = io.StringIO(), tmp_path / "log"
    copied = Copied(stream, file)
    holder = stream.write
    print("ä\ud800", file=stream)
    copied.close()
    print("later", file=stream)
    holder("held\n")
    assert stream.getvalue() == "ä\ud800\nlater\nheld\n"
    assert file.read_text() == "ä\\ud800\n"


def test_a_write_that_fails_is_not_copied_and_raises(tmp_path: Path):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    copied = Copied(stream, tmp_path / "log")
    with pytest.raises(UnicodeEncodeError):
        stream.write("ä")
    copied.close()
    assert (tmp_path / "log").read_text() == ""


def test_a_closed_stream_cannot_be_copied(tmp_path: Path):
    with pytest.raises(AttributeError):
        Copied(None, tmp_path / "log")


def test_a_write_replaced_by_others_stays_theirs(tmp_path: Path):
    stream, seen = io.StringIO(), list[str]()
    copied = Copied(stream, tmp_path / "log")
    inner = stream.write

    def theirs(text: str) -> int:
        seen.append(text)
        return inner(text)

    stream.write = theirs  # type: ignore[method-assign]
    copied.close()
    stream.write("kept")
    assert (seen, stream.getvalue(), (tmp_path / "log").read_text()) == (["kept"], "kept", "")
