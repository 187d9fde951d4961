"""What programs print reaches a terminal as text and colours alone, wherever it is cut."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import main
from cli.commands.runs.output import TerminalText
from cli.terminal import printable
from tests.dashboard.fake_dashboard import TOKEN, FakeDashboard, serving

STEERING = {
    "clipboard (OSC 52)": b"\x1b]52;c;ZXZpbA==\x07",
    "clipboard, ended by ST": b"\x1b]52;c;ZXZpbA==\x1b\\",
    "link (OSC 8)": b"\x1b]8;;http://evil.example\x1b\\",
    "title": b"\x1b]0;title\x07",
    "C1 CSI": "\u009b2J".encode(),
    "C1 OSC": "\u009d52;c;eA==\u009c".encode(),
    "C1 alone": "\u0085\u0084".encode(),
    "DCS": b"\x1bP$qm\x1b\\",
    "APC": b"\x1b_G\x1b\\",
    "clear": b"\x1b[2J\x1b[H",
    "move": b"\x1b[10A",
    "private": b"\x1b[?1049h",
    "private colours": b"\x1b[>4;2m",
    "question": b"\x1b[6n\x1b[c",
    "reset": b"\x1bc",
    "charset": b"\x1b(0",
    "bell and backspaces": b"\x07\x08\x08\x0e",
    "marks of direction": "\u202e\u2066".encode(),
    "delete": b"\x7f",
}


@pytest.mark.parametrize("kind", STEERING)
def test_sequences_that_steer_are_dropped_wherever_they_are_cut(kind):
    log = b"loss 1\n" + STEERING[kind] + "näher\r\n".encode()
    for cut in range(len(log) + 1):
        terminal = TerminalText()
        shown = terminal.feed(log[:cut]) + terminal.feed(log[cut:]) + terminal.feed(b"", is_last=True)
        assert shown == "loss 1\nnäher\r\n", (kind, cut)


def test_colours_tabs_and_progress_bars_stay_wherever_they_are_cut():
    log = "\x1b[1;31mred\x1b[0m\t10 %|█\r\x1b[38;2;1;2;3mx\x1b[38:5:1my\x1b[m\n".encode()
    for cut in range(len(log) + 1):
        terminal = TerminalText()
        assert terminal.feed(log[:cut]) + terminal.feed(log[cut:]) == log.decode()
        assert terminal.is_coloured


def test_a_sequence_that_never_ends_swallows_no_more_than_its_line():
    terminal = TerminalText()
    assert terminal.feed(b"\x1b]52;c;" + b"A" * 100_000 + b"\nnext\n") == "\nnext\n"
    assert terminal.feed(b"\x1b[" + b"1" * 100_000 + b"mnext\n") == "next\n"


def test_bytes_that_are_no_text_are_shown_as_such():
    assert TerminalText().feed(b"\xff\x9b2J\n") == "��2J\n"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDashboard]:
    with serving(FakeDashboard()) as fake:
        monkeypatch.setenv("RANKZERO_URL", fake.url)
        monkeypatch.setenv("RANKZERO_TOKEN", TOKEN)
        yield fake


def on_a_terminal(*arguments: str) -> bytes:
    """What the command writes to a terminal."""
    own, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "cli.main", *arguments]
    program = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, close_fds=True)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(own, 65536):
            shown += piece
    except OSError:  # the other side is closed
        pass
    os.close(own)
    assert program.communicate()[1] == b"" and program.returncode == 0
    return shown.replace(b"\r\n", b"\n")


LOG = b"\x1b[32mgreen " + b"".join(STEERING.values()) + b"\xff end\n"


def test_a_log_is_safe_on_a_terminal_and_unchanged_elsewhere(fake, capfdbinary, monkeypatch) -> None:
    fake.log = LOG
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    assert on_a_terminal("logs", "abcdefghij") == "\x1b[32mgreen � end\n\x1b[0m".encode()
    assert on_a_terminal("logs", "abcdefghij", "--raw") == LOG
    for raw in ([], ["--raw"]):
        assert main.run(["logs", "abcdefghij", *raw]) == 0
        assert capfdbinary.readouterr().out == LOG


def test_blanks_of_any_width_are_blanks_in_tables(monkeypatch) -> None:
    class Terminal:
        encoding = "utf-8"

    monkeypatch.setattr(sys, "stdout", Terminal())
    assert printable("12\u202f345 – \u00a0x\u2003y") == "12 345 –  x y"
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    assert printable("12\u202f345 –\u00a0x") == "12 345 \\u2013 x"
    monkeypatch.setattr(Terminal, "encoding", "latin-1")
    assert printable("12\u202f345\u00a0é") == "12 345 é"


NOT_UTF8 = b"caf\xe9"


@pytest.mark.real
@pytest.mark.parametrize(
    "arguments",
    [[b"launch", b"image_classifier", b"--name", NOT_UTF8], [b"launch", b"image_classifier", b"--", NOT_UTF8],
     [b"launch", b"image_classifier", b"--env", b"A=" + NOT_UTF8], [b"show", NOT_UTF8],
     [b"runs", b"--project", NOT_UTF8], [b"launch", NOT_UTF8], [NOT_UTF8], [b"drain", NOT_UTF8]],
)  # fmt: skip
def test_arguments_that_are_not_utf8_are_refused_in_a_sentence(fake, arguments, tmp_path: Path) -> None:
    command = [sys.executable.encode(), b"-P", b"-m", b"cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode in (1, 2), done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") == 1 and done.stdout == b""
