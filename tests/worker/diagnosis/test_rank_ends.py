"""Which rank failed first, and who kept the others waiting: from what ranks really write."""
# ruff: noqa: E501, W291 (real outputs stand here as they were)

from __future__ import annotations

import pytest

from domain.messages import Reason
from tests.worker.diagnosis.failures import (
    ENDED_BY_TORCHRUN,
    PEER_GONE,
    failure,
    python_failed,
    raised,
    torchrun,
    torchrun_failed,
)
from worker.diagnosis.diagnose import EndFacts, explain_end

GLOO_TIMEOUT = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/ana/train.py", line 14, in main
[rank0]:     dist.all_reduce(t)
[rank0]:   File "/home/ana/.venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
[rank0]:     work.wait()
[rank0]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation to complete
"""
GLOO_TIMEOUT_IN_BACKWARD = GLOO_TIMEOUT.replace("dist.all_reduce(t)", "loss.backward()").replace(
    'distributed/distributed_c10d.py", line 3252, in all_reduce', '_tensor.py", line 623, in backward'
)
MONITORED = """\
[rank0]:[E1121 06:33:44.490380765 ProcessGroupGloo.cpp:67] [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/ana/train.py", line 17, in main
[rank0]:     dist.monitored_barrier(timeout=datetime.timedelta(seconds=3))
[rank0]:   File "/home/ana/.venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5435, in monitored_barrier
[rank0]:     return group_to_use.monitored_barrier(  # type:ignore[attr-defined]
[rank0]: RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms
[rank0]:  Original exception: 
[rank0]: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete
"""
AT_THE_START = """\
[W1121 06:33:52.971731598 socket.cpp:494] [c10d] waitForInput: socket SocketImpl(fd=3) timed out after 5000ms
Traceback (most recent call last):
  File "/home/ana/train.py", line 6, in <module>
    dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 1899, in init_process_group
    default_pg, _ = _new_process_group_helper(
torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/1
"""
NOT_ALL_JOINED = AT_THE_START.replace(
    "wait timeout after 5000ms, keys: /default_pg/0//cpu//0/1",
    "Timed out after 61 seconds waiting for clients. 2/4 clients joined.",
)


def nccl(rank: int, enqueued: int) -> str:
    return f"""\
[rank{rank}]:[E1121 03:24:25.308 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600023 milliseconds before timing out.
[rank{rank}]:[E1121 03:24:25.311 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 3 PG status: last enqueued work: {enqueued}, last completed work: 2
[rank{rank}]:[E1121 03:24:25.344 ProcessGroupNCCL.cpp:684] [Rank {rank}] Some NCCL operations have failed or timed out. To avoid data inconsistency, we are taking the entire process down.
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600023 milliseconds before timing out.
"""


LOOK_AT_1 = (
    "Check what rank 1 did then (fewer batches than the others, a collective that only some ranks call, slow saving or "
    "loading); if the wait is intended, give init_process_group a longer timeout."
)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (GLOO_TIMEOUT, "all_reduce timed out after 5 s: rank 1 never arrived, train.py line 14"),
        (GLOO_TIMEOUT_IN_BACKWARD, "averaging the gradients (backward) timed out after 5 s: rank 1 never arrived, train.py line 14"),
        (MONITORED, "monitored_barrier timed out after 3 s: rank 1 never arrived, train.py line 17"),
        (AT_THE_START, "the start (init_process_group) timed out after 5 s: rank 1 never arrived, train.py line 6"),
    ],
    ids=["all_reduce", "backward", "monitored barrier", "start"],
)  # fmt: skip
def test_a_time_out_names_the_collective_the_seconds_and_the_rank_that_is_missing(stderr: str, message: str) -> None:
    verdict = torchrun_failed({0: stderr, 1: ""}, torchrun((0, 1, ""), (1, -15, "SIGTERM")))
    assert (verdict.reason, verdict.message) == (Reason.TIMED_OUT, f"rank 0 on gpu-1: {message}")
    assert "rank 1" in (verdict.next_step or "")
    assert verdict.error is not None and verdict.error.is_consequence


def test_nccl_says_its_sequence_number() -> None:
    verdict = torchrun_failed({0: nccl(0, 3), 1: ""}, torchrun((0, -6, "SIGABRT"), (1, -15, "SIGTERM")))
    assert verdict.reason is Reason.TIMED_OUT
    assert (
        verdict.message == "rank 0 on gpu-1: all_reduce (sequence number 3) timed out after 600 s: rank 1 never arrived"
    )
    assert verdict.next_step == LOOK_AT_1


BROKEN_LINK = "CUDA error: uncorrectable NVLink error detected during the execution"
PEER_LEFT = (
    "NCCL error: remote process exited or there was a network error, NCCL version 2.27.3\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    "Last error:\nsocketProgress: Connection closed by remote peer gpu-2<40123>"
)
BROKEN_GPU = (
    "NCCL error: unhandled cuda error, NCCL version 2.27.3\nncclUnhandledCudaError: Call to CUDA function failed.\n"
    "Last error:\nCuda failure 'uncorrectable ECC error encountered'"
)


def watchdog(rank: int, error: str) -> str:
    """The end of a rank whose error NCCL's watchdog noticed: SIGABRT, and no traceback of Python's."""
    what = (
        f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: "
        f"{error}\nException raised from ncclCommWatchdog at ProcessGroupNCCL.cpp:2068 (most recent call first):\n"
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f5a9616c1b6 in libc10.so)\n\n"
    )
    return (
        f"[rank{rank}]:[E1121 03:24:25.344 ProcessGroupNCCL.cpp:2068] {what}"
        f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {what}"
    )


@pytest.mark.parametrize(
    ("error", "message", "next_step"),
    [
        (BROKEN_LINK, f"DistBackendError: {BROKEN_LINK}", "The GPU of node gpu-1 is broken"),
        (BROKEN_GPU, "DistBackendError: NCCL error: unhandled cuda error", "The GPU of node gpu-1 is broken"),
        (
            "CUDA error: an illegal memory access was encountered",
            "",
            "Run once with --env CUDA_LAUNCH_BLOCKING=1",
        ),
        ("something new", "DistBackendError: something new", "Launch it with --env PYTHONFAULTHANDLER=1"),
    ],
    ids=["link", "ECC", "memory access", "unknown"],
)
def test_error_of_the_nccl_watchdog_is_the_ranks_own_failure(error: str, message: str, next_step: str) -> None:
    rank_errs = {0: watchdog(0, PEER_LEFT), 1: watchdog(1, error)}
    verdict = torchrun_failed(rank_errs, torchrun((0, -6, "SIGABRT"), (1, -6, "SIGABRT")))
    assert verdict.message is not None and verdict.message.startswith(f"rank 1 on gpu-1: {message}")
    assert (verdict.next_step or "").startswith(next_step)


def test_a_rank_whose_watchdog_noticed_that_its_peer_left_is_not_the_cause() -> None:
    verdict = torchrun_failed({0: watchdog(0, PEER_LEFT), 1: ""}, torchrun((0, -6, "SIGABRT")))
    assert verdict.message == "rank 0 on gpu-1 lost the other ranks and was aborted (SIGABRT)"


def test_rank_that_came_less_far_is_late_when_all_time_out() -> None:
    rank_errs = {0: nccl(0, 7), 1: nccl(1, 5), 2: nccl(2, 7)}
    ended = [(1, -6, "SIGABRT"), (2, -6, "SIGABRT")]
    verdict = torchrun_failed(rank_errs, torchrun((0, -6, "SIGABRT"), *ended))
    assert (verdict.message or "").endswith("timed out after 600 s: rank 1 never arrived")


def test_a_rank_on_another_node_may_be_the_late_one() -> None:
    verdict = torchrun_failed({0: GLOO_TIMEOUT}, torchrun((0, 1, "")), world_size=2)
    assert verdict.message == (
        "rank 0 on gpu-1: all_reduce timed out after 5 s: a rank, perhaps on another node, never arrived, train.py line 14"
    )


def test_how_many_did_not_join_is_said_where_nobody_knows_which() -> None:
    verdict = torchrun_failed({0: NOT_ALL_JOINED}, torchrun((0, 1, "")), world_size=4)
    assert verdict.message == (
        "rank 0 on gpu-1: the start (init_process_group) timed out after 61 s: 2 ranks never arrived, train.py line 6"
    )


def test_a_rank_that_failed_by_itself_is_the_reason_of_its_peers_time_out() -> None:
    rank_errs = {0: GLOO_TIMEOUT, 1: raised(1, "work()", "KeyError: 'label'")}
    verdict = torchrun_failed(rank_errs, torchrun((0, 1, ""), (1, 1, "")))
    assert verdict.message == "rank 1 on gpu-1: KeyError: 'label', train.py line 41"


def test_earlier_error_of_two_ranks_counts() -> None:
    said = failure(1, 0, 1)
    summary = torchrun((1, 1, ""), (0, 1, "")).replace(said, said.replace("03:24:28", "03:24:20"))
    rank_errs = {0: raised(0, "work()", "KeyError: 'first'"), 1: raised(1, "work()", "KeyError: 'second'")}
    assert (torchrun_failed(rank_errs, summary).message or "").startswith("rank 0 on gpu-1: KeyError: 'first'")


def test_a_lost_peer_while_cleaning_up_is_still_only_a_lost_peer() -> None:
    cleaning_up = (
        PEER_GONE
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + raised(0, "self.queue.close()", "AttributeError: 'Loader' object has no attribute 'queue'")
    )
    verdict = torchrun_failed({0: cleaning_up, 1: ""}, torchrun((0, 1, ""), (1, 3, "")))
    assert (verdict.message or "").startswith("rank 1 on gpu-1: exit code 3, no traceback")


def test_a_rank_that_somebody_ended_with_sigterm_is_named_not_its_peer() -> None:
    verdict = torchrun_failed({0: PEER_GONE, 1: ""}, torchrun((1, -15, "SIGTERM"), (0, 1, "")))
    assert verdict.message == "rank 1 on gpu-1 was ended by a signal (SIGTERM)"
    assert "Find out what sent it on node gpu-1" in (verdict.next_step or "")


def test_ctrl_c_is_named_first_where_a_rank_ended_by_its_signal() -> None:
    verdict = torchrun_failed({0: PEER_GONE, 1: ""}, torchrun((1, -2, "SIGINT"), (0, 1, "")))
    assert (verdict.next_step or "").startswith("Somebody pressed Ctrl-C in its terminal")


def test_an_exception_that_was_caught_is_not_blamed_when_torchrun_is_killed() -> None:
    verdict = explain_end(
        EndFacts(
            exit_code=-9,
            signal="SIGKILL",
            node="gpu-1",
            rank_errs={0: raised(0, "retry()", "OSError: slow"), 1: ""},
        )
    )
    assert verdict.message == "torchrun on gpu-1 was killed (SIGKILL); the kernel does this when memory runs out"


def test_a_database_that_is_away_is_not_a_lost_peer() -> None:
    stderr = raised(1, "connect()", "ConnectionRefusedError: [Errno 111] Connection refused")
    verdict = torchrun_failed({0: PEER_GONE, 1: stderr}, torchrun((0, 1, ""), (1, 1, "")))
    assert (
        verdict.message == "rank 1 on gpu-1: ConnectionRefusedError: [Errno 111] Connection refused, train.py line 41"
    )


# -- processes that a script starts by itself ----------------------------------------------------

SPAWN_FRAMES = """\
W1121 06:35:06.032000 16247 torch/multiprocessing/spawn.py:165] Terminating process 16252 via signal SIGTERM
Traceback (most recent call last):
  File "/home/ana/train.py", line 12, in <module>
    if __name__=='__main__': mp.spawn(work, (sys.argv[1],), nprocs=2)
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 192, in join
    raise ProcessExitedException(
"""
SPAWN_RAISED = (
    SPAWN_FRAMES
    + """\
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
  File "/home/ana/train.py", line 3, in work
    raise ValueError("in the child")
ValueError: in the child

"""
)
SPAWN_EXITED = SPAWN_FRAMES + "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with "


@pytest.mark.parametrize(
    ("stderr", "reason", "message"),
    [
        (SPAWN_RAISED, Reason.SCRIPT_ERROR, "rank 1 on gpu-1: ValueError: in the child, train.py line 3"),
        (SPAWN_EXITED + "signal SIGKILL\n", Reason.KILLED, "rank 1 on gpu-1 was killed (SIGKILL); the kernel does this when memory runs out"),
        (SPAWN_EXITED + "exit code 3\n", Reason.EXIT_CODE, "rank 1 on gpu-1: exit code 3, no traceback"),
        (SPAWN_EXITED + "signal SIGSEGV\n", Reason.KILLED, "rank 1 on gpu-1 crashed (SIGSEGV, an invalid memory access in native code)"),
    ],
    ids=["raised", "killed", "exit", "crash"],
)  # fmt: skip
def test_the_process_that_mp_spawn_names_is_the_rank(stderr: str, reason: Reason, message: str) -> None:
    verdict = python_failed(stderr)
    assert (verdict.reason, verdict.message) == (reason, message)


def test_ranks_that_share_one_stream_are_told_apart() -> None:
    """Lightning starts the other ranks itself, and all write to the first one's stderr."""
    mine, its = PEER_GONE.splitlines(), raised(1, "step()", "ValueError: bad batch").splitlines()
    mixed = [line for pair in zip(mine, its, strict=False) for line in pair] + mine[len(its) :]
    verdict = python_failed("\n".join(mixed) + "\n")
    assert verdict.message == "rank 1 on gpu-1: ValueError: bad batch, train.py line 41"


def test_a_torchrun_inside_the_script_is_read_like_ours() -> None:
    """`-m accelerate.commands.launch` is one."""
    stderr = raised(1, "step()", "ValueError: bad batch") + torchrun((1, 1, ""), ENDED_BY_TORCHRUN)
    assert python_failed(stderr).message == "rank 1 on gpu-1: ValueError: bad batch, train.py line 41"


# -- ends without a traceback on stderr ----------------------------------------------------------

PRINTED = 'Traceback (most recent call last):\n  File "/home/ana/train.py", line 7, in main\n    go()\nValueError: bad thing\n'


@pytest.mark.parametrize(
    ("exit_code", "err", "out", "message"),
    [
        (1, "", PRINTED, ": ValueError: bad thing, train.py line 7"),
        (3, PRINTED, "", ": exit code 3 after ValueError: bad thing, train.py line 7"),
        (3, "", PRINTED + "giving up\n", ": exit code 3 after ValueError: bad thing, train.py line 7"),
        (3, "", "loss 3.2\nthe loss is too high\n", ": exit code 3, no traceback; last line: the loss is too high"),
        (7, "no data\n[W1123 03:24:48.049015453 WorkerServer.cpp:139] [c10d] Server exited\n", "", ": exit code 7, no traceback; last line: no data"),
        (3, "[W1123 03:24:48.049015453 WorkerServer.cpp:139] [c10d] Server exited\n", "too high\n", ": exit code 3, no traceback; last line: too high"),
        (127, "sh: 1: nvcc: not found\n", "", ": exit code 127 (a command was not found), no traceback; last line: sh: 1: nvcc: not found"),
        (137, "", "", ": exit code 137 (a program it started was ended by SIGKILL), no traceback"),
        (
            2, "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n╭─ Error ─────────────────╮\n│ No such option: --foo   │\n╰─────────────────────────╯\n",
            "", ": bad argument (exit code 2): No such option: --foo",
        ),
        (
            2, "usage: train.py [-h] [--lr LR]\ntrain.py: error: argument --lr: invalid float value: 'big'\n", "",
            ": bad argument (exit code 2): train.py: error: argument --lr: invalid float value: 'big'",
        ),
        (-4, "", "", " crashed (SIGILL): a package uses instructions that this processor does not have"),
        (
            -11, 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File "/v/lib/python3.11/site-packages/x/y.py", line 5 in z\n  File "/home/ana/train.py", line 9 in main\n',
            "", " crashed (SIGSEGV, an invalid memory access in native code), train.py line 9",
        ),
        (
            -6, "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", "",
            ": not enough memory: bad_alloc",
        ),
    ],
)  # fmt: skip
def test_ends_in_words(exit_code: int, err: str, out: str, message: str) -> None:
    verdict = torchrun_failed(
        {0: PEER_GONE, 1: err}, torchrun((1, exit_code, ""), ENDED_BY_TORCHRUN), rank_outs={1: out}
    )
    assert verdict.message == f"rank 1 on gpu-1{message}"


@pytest.mark.parametrize(
    ("argument", "next_step"),
    [
        ("unrecognized arguments: --foo", "Correct the extra arguments"),
        ("unrecognized arguments: --local-rank=0", "Choose the launcher torchrun"),
        ("the following arguments are required: --local_rank", "Choose the launcher `launch`"),
    ],
)
def test_a_bad_argument_has_its_next_step(argument: str, next_step: str) -> None:
    verdict = python_failed(f"usage: train.py [-h]\ntrain.py: error: {argument}\n", exit_code=2)
    assert verdict.message == f"rank 0 on gpu-1: bad argument (exit code 2): train.py: error: {argument}"
    assert (verdict.next_step or "").startswith(next_step)


def test_a_kill_for_memory_says_how_much_was_allowed() -> None:
    verdict = python_failed("", exit_code=-9, signal="SIGKILL", out_of_memory_kills=1, memory_limit_bytes=2**31)
    assert verdict.message == (
        "rank 0 on gpu-1 was killed by the kernel because memory ran out (SIGKILL; the limit here is 2.00 GiB)"
    )
    assert (verdict.next_step or "").startswith("Halve the batch per process")


def test_a_torchrun_too_old_for_an_option() -> None:
    verdict = torchrun_failed(
        {}, "usage: torchrun [-h]\ntorchrun: error: unrecognized arguments: --local-addr=10.0.0.1\n"
    )
    assert verdict.message == (
        "torchrun could not start on gpu-1: its torch is too old (torchrun does not know --local-addr=10.0.0.1)"
    )
    assert verdict.next_step == "Install torch 2.4 or newer in the Python that trains, or choose another with --python."


@pytest.mark.parametrize(
    ("exception", "fault"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "device"),
        ("torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution", "device"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", None),
        ("RuntimeError: CUDA error: unspecified launch failure", None),
        ("ValueError: Xid 79 is in my data", None),
    ],
)
def test_only_an_error_that_no_program_causes_blames_the_device(exception, fault):
    end = python_failed(raised(0, "loss.backward()", exception))
    assert end.error is not None and end.error.fault == fault
