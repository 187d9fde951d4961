"""What Slurm says, in words."""

from __future__ import annotations

import pytest

from domain import slurm
from domain.messages import JobReport, Reason


def said(state: str = "PENDING", reason: str = "", **more) -> JobReport:
    return JobReport(**{"job_id": "123", "state": state, "reason": reason, "partition": "gpu"} | more)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "Slurm: waiting for resources (job 123, partition gpu)"),
        ("Priority", "Slurm: jobs of higher priority are waiting (job 123, partition gpu)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[0-1]",
            "Slurm: a node it names is not available (UnavailableNodes:n[0-1]) (job 123, partition gpu)",
        ),
        (
            "QOSMaxGRESPerUser",
            "Slurm: a limit of its account or quality of service is reached (QOSMaxGRESPerUser) "
            "(job 123, partition gpu)",
        ),
        ("SomethingNew", "Slurm: SomethingNew (job 123, partition gpu)"),
    ],
)
def test_a_waiting_job_says_why(reason: str, words: str):
    assert slurm.waits(said(reason=reason)) == words


def test_before_and_after_the_queue_there_are_words_too():
    assert slurm.waits(None) == "Slurm: the job is being submitted"
    assert slurm.waits(said("RUNNING", nodes="n[0-1]")) == ("Slurm: job 123 runs on n[0-1]; its workers are connecting")
    assert slurm.waits(said("SUSPENDED")) == "Slurm: the job is suspended (job 123, partition gpu)"


@pytest.mark.parametrize(
    ("state", "reason", "word"),
    [
        ("TIMEOUT", Reason.TIME_LIMIT, "reached its time limit of 1:00:00"),
        ("CANCELLED", Reason.KILLED, "cancelled in Slurm"),
        ("PREEMPTED", Reason.KILLED, "preempted"),
        ("NODE_FAIL", Reason.NODE_LOST, "a node of n[0-1] failed"),
        ("OUT_OF_MEMORY", Reason.OUT_OF_MEMORY, "more memory than was allocated to it"),
        ("FAILED", Reason.LAUNCH_FAILED, "exit code 1"),
        ("REFUSED", Reason.LAUNCH_FAILED, "Slurm refused the job"),
    ],
)
def test_an_end_has_a_reason_a_sentence_and_a_next_step(state: str, reason: Reason, word: str):
    end = slurm.end(said(state, nodes="n[0-1]", time_limit="1:00:00", exit_code="1"))
    assert end.reason == reason and word in end.message and end.message.endswith(".") and end.next_step


def test_output_of_a_job_is_shown_where_workers_are_silent():
    assert "It printed: sh: python: not found" in slurm.end(said("FAILED", output="sh: python: not found")).message
