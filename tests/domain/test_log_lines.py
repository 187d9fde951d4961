"""No name that somebody chose can pass for a line of our log, or steer whoever reads it."""

from __future__ import annotations

import io
import logging

import pytest

from domain.masking.log_lines import LineFormatter

FORGED = "x\n2026-01-01 00:00:00,000 INFO all is well"


@pytest.fixture
def written():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    # Below no other logger: pytest keeps what reaches those, and cannot send a lone surrogate between processes.
    log = logging.Logger("apart")
    log.addHandler(handler)
    return log, stream


def test_a_message_is_one_line_whatever_it_names(written):
    log, stream = written
    log.warning("cannot read %s", f"{FORGED}\r\x1b]52;c;x\x07\u202e\u2028\udcff")
    assert stream.getvalue() == (
        "WARNING cannot read x\\n2026-01-01 00:00:00,000 INFO all is well\\r\\x1b]52;c;x\\x07\\u202e\\u2028\\udcff\n"
    )


def test_a_traceback_is_set_off(written):
    log, stream = written
    try:
        raise ValueError(f"{FORGED}\x1b[2J")
    except ValueError:
        log.exception("it broke")
    first, *lines = stream.getvalue().splitlines()
    assert first == "ERROR it broke"
    assert all(line.startswith("  | ") for line in lines)
    assert "\x1b" not in stream.getvalue()
    assert "ValueError: x" in stream.getvalue()


def test_a_password_in_an_address_is_hidden(written):
    log, stream = written
    log.warning("cannot reach %s", "postgresql://me:secret@db/x")
    assert stream.getvalue() == "WARNING cannot reach postgresql://me:********@db/x\n"
