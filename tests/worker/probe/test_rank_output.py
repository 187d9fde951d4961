"""Ranks that share one output: each has a log of its own, and the shared output is as without us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from domain.launch.plan import PROBE_FOLDER

pytestmark = pytest.mark.real


def run(tmp_path: Path, env: dict[str, str], code: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run code as a rank that the probe sees."""
    variables = {"RANKZERO_PROBE_DIR": str(tmp_path), "PYTHONPATH": str(PROBE_FOLDER), "RANK": "3"}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env=os.environ | variables | env, capture_output=True, timeout=60)


@pytest.mark.parametrize("options", [(), ("-u",)])
def test_a_rank_that_shares_its_output_has_logs_of_its_own(tmp_path: Path, options: tuple[str, ...]) -> None:
    code = "import sys; print('out é'); sys.stdout.write('part'); print(' end'); raise SystemExit('the last word')"
    ended = run(tmp_path, {"RANKZERO_RANK_LOGS": str(tmp_path), "PYTHONUTF8": "1"}, code, *options)
    assert ended.returncode == 1
    assert ended.stdout.decode() == "out é\npart end\n" == (tmp_path / "rank3.out").read_text()
    assert ended.stderr.decode() == "the last word\n" == (tmp_path / "rank3.err").read_text()


@pytest.mark.parametrize("logs", [True, False])
def test_a_line_is_written_at_once_and_whole(tmp_path: Path, logs: bool) -> None:
    """Ranks that print to one terminal would cut each other's lines; a pipe would keep them back."""
    code = (
        "import os; print('step', 1); os.write(1, b'amid '); print('loss', end=' '); os.write(1, b'all '); print(0.5)"
    )
    asked = {"RANKZERO_RANK_LOGS": str(tmp_path)} if logs else {}
    ended = run(tmp_path, asked | {"PYTHONUNBUFFERED": ""}, code)  # empty: as if it were not set
    assert ended.stdout == b"step 1\namid all loss 0.5\n"


def test_a_traceback_stands_in_the_ranks_own_log(tmp_path: Path) -> None:
    ended = run(tmp_path, {"RANKZERO_RANK_LOGS": str(tmp_path)}, "1 / 0")
    assert ended.returncode == 1 and b"ZeroDivisionError" in ended.stderr
    assert (tmp_path / "rank3.err").read_bytes() == ended.stderr


def test_streams_are_the_scripts_own_where_nobody_asks_for_logs(tmp_path: Path) -> None:
    ended = run(tmp_path, {}, "import sys; print(sys.stdout is sys.__stdout__)")
    assert ended.stdout == b"True\n" and not (tmp_path / "rank3.out").exists()


def test_a_log_that_cannot_be_written_leaves_the_output_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rank3.out").symlink_to("/dev/full")
    ended = run(tmp_path, {"RANKZERO_RANK_LOGS": str(tmp_path)}, "print('still here')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"still here\n", b"")


def test_a_log_that_cannot_be_made_leaves_the_probe_switched_on(tmp_path: Path) -> None:
    code = "import sys; print([type(finder).__module__ for finder in sys.meta_path][0])"
    ended = run(tmp_path, {"RANKZERO_RANK_LOGS": str(tmp_path / "gone")}, code)
    assert (ended.stdout, ended.stderr) == (b"rankzero_probe\n", b"")
