"""Checkpoints that a node sends, and those that its runs resume from."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from domain.assignments import ResumeFrom
from domain.messages import Reason
from tests.worker.checkpoints.checkpoint_node import zip_bytes
from tests.worker.virtual_node import VirtualNode, checkpoint, nothing
from worker.session.answers import Adoption


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    return virtual_node


def test_a_checkpoint_is_sent_whole(node):
    node.assign(node.assignment(node.script(checkpoint("ckpt_12.pt", size=9_000_000))))
    node.until_settled()
    (offered,) = node.server.checkpoints
    assert (offered["path"], offered["step"], offered["complete"]) == ("work/ckpt_12.pt", 12, True)
    assert offered["data"] == (node.dir() / "work/ckpt_12.pt").read_bytes()
    assert [path.name for path in (node.dir() / "outbox").iterdir()] == ["taken.json"]


def test_a_checkpoint_on_a_shared_disk_is_not_sent_but_linked(node, tmp_path):
    node.server.adopt_directory = tmp_path
    node.trainings.adoption = Adoption(directory=str(tmp_path), proof_file="unused", proof="unused")
    node.assign(node.assignment(node.script(checkpoint("a.pt"))))
    node.until_settled()
    (offered,) = node.server.checkpoints
    assert offered["complete"] and offered["adopted"] == "adopted-0"
    assert (tmp_path / "adopted-0").stat().st_nlink == 1


def test_a_half_written_checkpoint_is_not_sent_but_told_of(node):
    assignment = node.assignment(node.script(lambda process: process.write("a.pt", zip_bytes()[:-9])))
    node.assign(assignment)
    assert node.until_settled().state == "succeeded"
    assert [one for one in node.server.checkpoints if one["complete"]] == []
    (finding,) = node.server.findings_of[assignment.fence]
    assert finding.kind == "checkpoint not whole"
    assert "work/a.pt" in finding.evidence


def stored(node, name, data):
    """A checkpoint on the server, as an assignment names it."""
    node.server.downloads[5] = data
    digest = hashlib.sha256(data).hexdigest()
    return ResumeFrom(checkpoint_id=5, name=name, sha256=digest, size_bytes=len(data), download_path="/unused")


@pytest.mark.parametrize("name", ["last.pt", "checkpoint.pth.tar"])
def test_a_run_resumes_from_a_checkpoint_that_was_fetched_first(node, name):
    def resume(process):
        path = process.argv[-1]
        process.print(f"{Path(path).read_text()} {process.env['RANKZERO_RESUME'] == path}")

    script = node.script(resume)
    source = stored(node, f"work/ckpt/{name}", b"the weights")
    node.assign(node.assignment(script, spec={"args": ["{resume}"]}, resume_from=source))
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "the weights True\n"
    assert (node.dir() / "resume" / name).exists()


def test_a_run_resumes_from_a_folder_that_came_as_an_archive(node, tmp_path):
    (tmp_path / "step_8").mkdir()
    (tmp_path / "step_8/.metadata").write_text("all of it")
    with tarfile.open(tmp_path / "sent.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(tmp_path / "step_8", "step_8")
    source = stored(node, "work/step_8.tar", (tmp_path / "sent.tar").read_bytes())
    script = node.script(lambda process: process.print(Path(process.env["RANKZERO_RESUME"], ".metadata").read_text()))
    node.assign(node.assignment(script, resume_from=source))
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "all of it\n"
    assert [path.name for path in (node.dir() / "resume").iterdir()] == ["step_8"]


def test_an_archive_that_is_none_fails_the_resume(node):
    source = stored(node, "work/step_8.tar", b"no archive" * 100)
    node.assign(node.assignment(node.script(nothing), resume_from=source))
    assert node.until_settled().reason == Reason.RESUME_FAILED


def test_a_checkpoint_that_cannot_be_fetched_fails_the_resume(node):
    source = ResumeFrom(checkpoint_id=5, name="a.pt", sha256="0" * 64, size_bytes=1, download_path="/unused")
    node.assign(node.assignment(node.script(nothing), resume_from=source))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.RESUME_FAILED)
