"""What DEBUGGING tells people to run does run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import text

from db.engine import Store

PAGE = (Path(__file__).parents[1] / "docs/DEBUGGING.md").read_text()
EVENT = re.compile(r"python -c \"(.+)\" FILE")


def test_the_script_that_steps_through_a_worker_ends_with_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    exec(compile(script, "step.py", "exec"), {})
    seconds = capsys.readouterr().out.splitlines()
    assert "'starting', 'running'] [(0, 0.0" in seconds[0]
    assert "'succeeded'] [(2, 1.0" in seconds[-1] and len(seconds) > 4


def test_the_last_point_of_an_event_file_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.worker.streams.event_bytes import scalar

    file = tmp_path / "events.out.tfevents.1.host.1.0"
    file.write_bytes(b"".join(scalar(step, 0.5 * step, wall=7.0) for step in (39, 40)))
    monkeypatch.setattr("sys.argv", ["-c", str(file)])
    (command,) = EVENT.findall(PAGE)
    exec(command, {})
    assert capsys.readouterr().out == "(40, 20.0, 7.0)\n"


def test_queries_fit_the_tables_of_the_store(store: Store) -> None:
    queries = re.findall(r"rankzero\.db \"(.+?)\"`", PAGE)
    assert len(queries) == 2
    with store.read() as session:
        assert [session.execute(text(query)).all() for query in queries] == [[], []]


@pytest.mark.parametrize("option", ["--headed", "--slowmo"])
def test_options_that_show_a_browser_are_known(option: str, pytestconfig: pytest.Config) -> None:
    assert option in PAGE and pytestconfig.getoption(option) is not None
