"""A training gets its secrets as variables; they are in no file of ours and in nothing that the node sends."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from domain.messages import Reason
from tests.worker.real_node import WAITING

TOKEN = "hf_AbCdEfGhIjKlMn"
PRINTED = """
import os
token = os.environ["HF_TOKEN"]
open("digest", "w").write(token[::-1])
print("token", token, flush=True)
"""


def given(node, script: str, **more):
    secrets = more.pop("secrets", {"HF_TOKEN": TOKEN})
    return node.assignment(script, spec={"secrets": ["HF_TOKEN"]}, secrets=secrets, **more)


def files_with(node, text: str) -> set[str]:
    return {path.name for path in node.dir().rglob("*") if text.encode() in content(path)}


def content(path: Path) -> bytes:
    """What is in a file; nothing where it was a supervisor's temporary one, or is a folder."""
    with suppress(FileNotFoundError, IsADirectoryError):
        return path.read_bytes()
    return b""


def test_the_ranks_have_the_value_and_nothing_of_ours_does(node):
    node.assign(given(node, node.script(PRINTED + "raise ValueError(token)")))
    end = node.until_settled()
    hidden = "*" * len(TOKEN)
    assert (node.dir() / "work/digest").read_text() == TOKEN[::-1]
    assert node.server.text("logs/rank0.out") == f"token {hidden}\n"
    assert hidden in node.server.text("logs/rank0.err") and TOKEN not in node.server.text("logs/rank0.err")
    assert hidden in end.message and TOKEN not in end.model_dump_json()
    assert node.server.reports[0][1].env["HF_TOKEN"] == "********"
    assert files_with(node, TOKEN) == set()
    assert (node.dir() / "logs/rank0.out").read_text() == f"token {hidden}\n"
    assert hidden in (node.dir() / "logs/rank0.err").read_text()


def test_a_restarted_worker_sends_nothing_before_it_has_them_again(node):
    assignment = given(node, node.script(PRINTED + WAITING))
    node.assign(assignment)
    node.until_ready()
    node.server.files.clear()
    node.start_worker()
    for _ in range(5):
        node.turn()
    assert not node.server.files
    node.assign(assignment)
    node.let_end()
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == f"token {'*' * len(TOKEN)}\n"


def test_nothing_starts_without_them(node):
    script = node.script(PRINTED)
    node.assign(given(node, script, secrets={}))
    for _ in range(5):
        node.turn()
    assert not (node.dir() / "launch.json").exists() and node.server.states() == []
    node.assign(given(node, script, secrets={}, secrets_problem="The secret HF_TOKEN cannot be decrypted."))
    end = node.until_settled()
    assert (end.reason, end.message) == (Reason.LAUNCH_FAILED, "The secret HF_TOKEN cannot be decrypted.")


def test_a_worker_that_cannot_get_them_again_reports_the_bare_end(node):
    assignment = given(node, node.script(PRINTED + WAITING + "raise ValueError(token)"))
    node.assign(assignment)
    node.until_ready()
    node.server.files.clear()
    node.start_worker()
    node.assign(assignment.model_copy(update={"secrets": {}, "secrets_problem": "The key is lost."}))
    node.let_end()
    end = node.until_settled()
    assert (end.state, end.exit_code) == ("failed", 1) and "The key is lost" in end.message
    assert not node.server.files


def test_files_are_masked_also_when_it_is_superseded_and_its_worker_was_restarted(node):
    assignment = given(node, node.script(PRINTED + WAITING))
    node.assign(assignment)
    node.until_ready()
    assert files_with(node, TOKEN) == {"rank0.out"}
    node.start_worker()
    node.server.superseded.add(1)
    node.assign(assignment)
    node.until(lambda: not node.daemon.attempts)
    assert files_with(node, TOKEN) == set()
