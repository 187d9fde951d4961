"""A state arrives, whatever the report that carries it is too large or too odd for."""

from __future__ import annotations

import pytest

from domain.messages import Reason, TaskReport
from tests.worker.virtual_node import VirtualNode, failing, then, waiting
from worker.attempt.reports import bare, end_of, send_report
from worker.session.failures import RequestRefused


def test_more_environment_than_linux_passes_on_is_a_failure_with_its_reason(node):
    """As a store from before the limit may wish it; the report of what was to be started is refused for its size."""
    node.server.longest_report_bytes = 2 * 1024 * 1024
    env = {f"BLOB_{n}": "x" * 100_000 for n in range(35)}
    node.assign(node.assignment(node.script("pass"), spec={"env": env}))
    end = node.until_settled()
    assert node.server.states() == ["starting", "failed"]
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert "larger than Linux passes to a program" in end.message
    assert "put long lists into a file" in end.next_step


def test_a_report_that_is_refused_is_sent_bare(virtual_node: VirtualNode):
    virtual_node.server.longest_report_bytes = 1000
    virtual_node.assign(
        virtual_node.assignment(virtual_node.script(then(waiting, failing(f"ValueError: {'x' * 5000}"))))
    )
    virtual_node.until_ready()
    virtual_node.let_end()
    end = virtual_node.until_settled()
    assert virtual_node.server.states() == ["starting", "running", "failed"]
    assert (end.reason, end.error) == (Reason.SCRIPT_ERROR, None)
    assert end.message.startswith("rank 0 on n0") and len(end.message) <= 501


def test_a_report_that_no_json_can_hold_is_sent_bare():
    class Client:
        def __init__(self):
            self.sent = []

        def report(self, task, report):
            self.sent.append(report.model_dump_json())

    client = Client()
    send_report(client, None, TaskReport(state="failed", message="no file caf\udce9\0.py", next_step="x"))
    (sent,) = client.sent
    assert TaskReport.model_validate_json(sent).message == "no file caf\\udce9.py"


def test_report_that_is_refused_twice_holds_nothing_up():
    class Client:
        def report(self, task, report):
            raise RequestRefused("no")

    with pytest.raises(RequestRefused):
        send_report(Client(), None, TaskReport(state="failed"))


def test_a_bare_report_keeps_what_decides():
    whole = TaskReport(state="failed", pid=7, exit_code=1, reason=Reason.KILLED, message="m" * 900, env={"A": "b"})
    report = bare(whole)
    assert (report.state, report.pid, report.exit_code, report.reason) == ("failed", 7, 1, Reason.KILLED)
    assert report.message == "m" * 500 + "…" and report.env is None


TRACEBACK = """step 25
Traceback (most recent call last):
  File "/home/ada/train.py", line 9, in <module>
    raise ValueError("rank three has enough")
ValueError: rank three has enough
"""


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_watched_commands_traceback_is_found_in_its_own_rank_and_in_merged_output(tmp_path, stream):
    """In a terminal both streams are one, which is kept as standard output."""
    (tmp_path / "logs").mkdir()
    for name in ("out", "err"):
        (tmp_path / "logs" / f"rank3.{name}").write_text(TRACEBACK if name == stream else "")
    state = {"exit_code": 1, "signal": None, "stop_requested_at": None, "killed": [], "launch_error": None, "pid": 7}
    launch = {"launcher": "python", "watched": True, "is_merged": stream == "out"}
    end = end_of(tmp_path, state, launch, "node", 1, shut_down=False)
    assert (end.state, end.reason) == ("failed", Reason.SCRIPT_ERROR)
    assert end.message.startswith("rank 3 on node: ValueError: rank three has enough")


@pytest.mark.parametrize(("signal", "exit_code"), [("SIGINT", -2), (None, 130)])
def test_a_watched_command_that_its_person_interrupts_is_stopped(tmp_path, signal, exit_code):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank0.err").write_text("Traceback (most recent call last):\nKeyboardInterrupt\n")
    state = {"exit_code": exit_code, "signal": signal, "stop_requested_at": None, "killed": [], "launch_error": None}
    launch = {"launcher": "python", "watched": True}
    end = end_of(tmp_path, state | {"pid": 7}, launch, "node", 0, shut_down=False)
    assert (end.state, end.reason, end.exit_code) == ("stopped", None, exit_code)
    assert "Ctrl-C" in end.message
    launched = end_of(tmp_path, state | {"pid": 7}, launch | {"watched": False}, "node", 0, shut_down=False)
    assert launched.state == "failed"
