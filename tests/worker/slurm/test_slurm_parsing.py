"""What Slurm 22.05 prints, as it was recorded."""

from __future__ import annotations

import pytest

from worker.slurm import commands

SQUEUE = """\
1|rankzero-a-1|COMPLETED|cpu|n[0-1]|1795254710|1:00:00|None
4|rankzero-c-1|RUNNING|cpu|n[0-1]|1795254713|UNLIMITED|None
2|rankzero-b-1|PENDING|cpu||N/A|1:00:00|PartitionNodeLimit
3|rankzero-lim|PENDING|one||1795259999|9:00:00|ReqNodeNotAvail, UnavailableNodes:n[0-1]|odd
5|somebody's own|PENDING|cpu||N/A|1:00:00|(null)
"""
SHOWN = (
    "JobId=2 JobName=rankzero-b-1 UserId=root(0) JobState=FAILED Reason=NonZeroExitCode Requeue=0 "
    "ExitCode=1:0 RunTime=00:00:03 TimeLimit=01:00:00 "
)
SINFO = """\
gpu*|up|6|64|gpu:a100:4(S:0-1)|1-00:00:00
gpu*|up|2|96+|gpu:h100:8,gpu:mig:2|1-00:00:00
cpu|up|200|128|(null)|infinite
old|down|1|8|gpu:2|1:00
"""


def test_jobs_are_read_with_their_names_and_reasons():
    jobs = commands.jobs(SQUEUE)
    assert [name for name, _ in jobs.values()][:2] == ["rankzero-a-1", "rankzero-c-1"]
    completed, running, waiting = jobs["1"][1], jobs["4"][1], jobs["3"][1]
    assert completed.has_ended and completed.state == "COMPLETED"
    assert (running.nodes, running.starts_at, running.reason) == ("n[0-1]", 1795254713.0, "")
    assert not running.has_ended
    assert waiting.reason == "ReqNodeNotAvail, UnavailableNodes:n[0-1]|odd"
    assert (waiting.partition, waiting.starts_at, waiting.time_limit) == ("one", 1795259999.0, "9:00:00")
    assert jobs["2"][1].starts_at is None


@pytest.mark.parametrize("printed", ["", "\n", "garbage", "a|b|c"])
def test_other_lines_are_no_jobs(printed: str):
    assert commands.jobs(printed) == {} and commands.partitions(printed) == []


@pytest.mark.parametrize(
    ("printed", "code"),
    [(SHOWN, "1"), ("ExitCode=0:9 x", "0 (signal 9)"), ("ExitCode=0:0", "0"), ("", "")],
)
def test_exit_codes_are_read(printed: str, code: str):
    assert commands.exit_code(printed) == code


def test_partitions_of_unlike_nodes_are_one():
    gpu, cpu, old = commands.partitions(SINFO)
    assert (gpu["name"], gpu["is_default"], gpu["nodes"], gpu["cpus_per_node"]) == ("gpu", True, 8, 96)
    assert (gpu["gpus_per_node"], gpu["time_limit"], gpu["is_up"]) == (10, "1-00:00:00", True)
    assert (cpu["is_default"], cpu["gpus_per_node"]) == (False, 0)
    assert not old["is_up"] and old["gpus_per_node"] == 2


def test_a_refusal_is_sbatchs_last_sentence():
    printed = (
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    )
    assert commands.refusal(printed) == "Batch job submission failed: Invalid partition name specified"
    assert commands.refusal("sbatch: unrecognized option '--nope'\n") == "sbatch: unrecognized option '--nope'"
    assert commands.refusal("") == "sbatch gave no reason"
    assert not commands.is_away(printed)


@pytest.mark.parametrize(
    "printed",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "sbatch: error: Munge encode failed: Failed to access munge.socket.2: No such file or directory",
    ],
)
def test_a_controller_that_does_not_answer_is_no_refusal(printed: str):
    assert commands.is_away(printed)
