"""`rankzero wait`: its exit codes, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from domain.messages import Finding, Findings
from tests.dashboard.running import FakeNode, Running

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(dashboard: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command against the test's dashboard."""
    from cli import main

    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main.run(list(arguments))
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def run_id(dashboard: Running, node: FakeNode) -> str:
    """A run that trains."""
    run_id = dashboard.launch(name="digits", gpus_per_node=1)
    node.report(node.task(), "running")
    return run_id


def test_the_end_is_waited_for_and_the_run_printed(node: FakeNode, run_id: str, command: Command) -> None:
    node.report(node.task(), "failed", exit_code=1, message="gone")
    assert command("wait", "digits") == (0, f"{run_id} (digits): failed\n", "")
    code, out, err = command("wait", run_id, "--json")
    assert (code, json.loads(out)["id"], err) == (0, run_id, "")


def test_a_condition_that_came_is_a_success(node: FakeNode, run_id: str, command: Command) -> None:
    node.log_points(node.task(), 0, val__loss=[(3, 0.1, 1e9)])
    code, out, _ = command("wait", run_id, "--until", "val/loss < 0.2 and step >= 3")
    assert code == 0 and out.startswith(f"{run_id} (digits): running · step 3")


def test_a_run_that_ends_without_it_is_a_failure(node: FakeNode, run_id: str, command: Command) -> None:
    node.report(node.task(), "succeeded", exit_code=0)
    code, out, err = command("wait", run_id, "--until", "val/loss < 0.2")
    assert (code, err) == (1, f"Run {run_id} has ended, and 'val/loss < 0.2' never came.\n")
    assert out == f"{run_id} (digits): succeeded\n"


def test_a_time_out_has_an_exit_code_of_its_own(run_id: str, command: Command) -> None:
    code, out, err = command("wait", run_id, "--timeout", "0")
    assert (code, err) == (3, f"'ended' has not come within 0; run {run_id} continues.\n") and "running" in out


def test_findings_are_told_meanwhile(node: FakeNode, run_id: str, command: Command) -> None:
    node.client.findings(node.task(), Findings(findings=[Finding(kind="hung", evidence="no step for 600 s")]))
    code, _, err = command("wait", run_id, "--timeout", "0")
    assert code == 3 and "hung: no step for 600 s\n" in err
    assert command("wait", run_id, "--until", "finding")[0] == 0


def test_a_wrong_condition_is_refused(run_id: str, command: Command) -> None:
    code, out, err = command("wait", run_id, "--until", "soon")
    assert (code, out) == (2, "") and "--until: 'soon' is no condition: write ended, finding, running" in err
    assert command("wait", run_id, "--timeout", "soon")[0] == 2


def test_an_absent_dashboard_counts_as_a_time_out(
    run_id: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.waiting.waits.wait", _away)
    code, _, err = command("wait", run_id, "--timeout", "0")
    assert code == 3 and err.count("Waiting for it.") == 1


async def _away(*_: object) -> None:
    from dashboard.errors import Rejection

    raise Rejection(503, "The store is busy.")
