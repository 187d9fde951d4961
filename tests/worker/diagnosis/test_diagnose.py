"""What two-rank runs of torchrun 2.13 really wrote when they failed, and the sentence it becomes."""

from __future__ import annotations

# ruff: noqa: E501 (real outputs stand here as they were)
import time

import pytest

from domain.device_memory import AllocatingLine
from domain.messages import Reason
from tests.domain.devices import device
from tests.worker.diagnosis.failures import (
    ENDED_BY_TORCHRUN,
    LAUNCHER_FRAMES,
    PEER_GONE,
    SIGTERM_TO_TORCHRUN,
    python_failed,
    raised,
    torchrun,
    torchrun_failed,
)
from worker.diagnosis.diagnose import EndFacts, Verdict, explain_end


def test_exit_code_0_is_success() -> None:
    assert explain_end(EndFacts(exit_code=0)) == Verdict("succeeded")


def test_a_stop_that_came_after_the_success_changes_nothing() -> None:
    assert explain_end(EndFacts(exit_code=0, stop_requested=True)).state == "succeeded"


def test_a_graceful_stop_is_a_stop_although_torchrun_exits_1() -> None:
    verdict = torchrun_failed({0: "", 1: ""}, SIGTERM_TO_TORCHRUN, stop_requested=True)
    assert (verdict.state, verdict.reason, verdict.error) == ("stopped", None, None)


def test_a_single_process_that_left_cleanly_when_asked_was_stopped() -> None:
    assert python_failed("", exit_code=0, stop_requested=True).state == "stopped"


def test_a_rank_that_breaks_while_it_is_stopped_was_stopped() -> None:
    stderr = raised(1, "save()", "RuntimeError: cannot save now")
    assert torchrun_failed({0: PEER_GONE, 1: stderr}, SIGTERM_TO_TORCHRUN, stop_requested=True).state == "stopped"


def test_a_stop_that_needed_killing_says_so() -> None:
    verdict = explain_end(
        EndFacts(exit_code=-9, signal="SIGKILL", node="gpu-1", stop_requested=True, killed_by_us=True)
    )
    assert verdict.state == "stopped"
    assert "gpu-1 it did not end within the grace period, so it was killed" in (verdict.message or "")


def test_a_failure_that_torchrun_saw_before_the_stop_stays_a_failure() -> None:
    rank_errs = {0: PEER_GONE, 1: raised(1, 'raise ValueError("bad thing")', "ValueError: bad thing")}
    verdict = torchrun_failed(rank_errs, torchrun((1, 1, ""), ENDED_BY_TORCHRUN), stop_requested=True)
    assert (verdict.state, verdict.reason) == ("failed", Reason.SCRIPT_ERROR)


def test_the_first_failing_ranks_exception_is_the_reason() -> None:
    rank_errs = {0: PEER_GONE, 1: raised(1, 'raise ValueError("bad thing")', "ValueError: bad thing")}
    verdict = torchrun_failed(rank_errs, torchrun((1, 1, ""), ENDED_BY_TORCHRUN), node_rank=0)
    assert (verdict.state, verdict.reason) == ("failed", Reason.SCRIPT_ERROR)
    assert verdict.message == "rank 1 on gpu-1: ValueError: bad thing, train.py line 41"
    error = verdict.error
    assert error is not None
    assert (error.rank, error.node_rank, error.exit_code, error.signal) == (1, 0, 1, None)
    assert (error.exception, error.file, error.line) == ("ValueError: bad thing", "/home/ana/train.py", 41)
    assert (error.traceback or "").startswith("Traceback (most recent call last):\n  File")
    assert error.at == time.mktime((2026, 11, 21, 3, 24, 28, 0, 0, -1))


@pytest.mark.parametrize("root", [(0, 1, ""), (0, -15, "SIGTERM"), (0, -6, "SIGABRT")])
def test_a_rank_that_only_lost_its_peer_is_not_to_blame(root: tuple[int, int, str]) -> None:
    """torchrun may observe the victim first."""
    rank_errs = {0: PEER_GONE, 1: raised(1, 'raise ValueError("bad thing")', "ValueError: bad thing")}
    verdict = torchrun_failed(rank_errs, torchrun(root, (1, 1, "")))
    assert verdict.message == "rank 1 on gpu-1: ValueError: bad thing, train.py line 41"
    verdict = torchrun_failed({0: PEER_GONE, 1: ""}, torchrun(root, (1, -9, "SIGKILL")))
    assert (verdict.message or "").startswith("rank 1 on gpu-1 was killed (SIGKILL)")


def test_when_all_ranks_here_only_lost_a_peer_that_is_said() -> None:
    verdict = torchrun_failed({0: PEER_GONE, 1: PEER_GONE}, torchrun((1, 1, ""), (0, 1, "")))
    assert (verdict.message or "").startswith(
        "rank 1 on gpu-1 lost its connection to the other ranks: RuntimeError: [/"
    )


@pytest.mark.parametrize(
    ("source", "exception", "exit_code", "reason", "message"),
    [
        (
            "torch.ones(2) @ torch.ones(3)",
            "RuntimeError: inconsistent tensor size, expected tensor [2] and src [3] to have the same number of elements",
            (1, ""),
            Reason.SCRIPT_ERROR,
            ": RuntimeError: inconsistent tensor size, expected tensor [2] and src [3] to have the same number of elements"
            ", train.py line 41",
        ),
        (
            "import flash_attention_9",
            "ModuleNotFoundError: No module named 'flash_attention_9'",
            (-6, "SIGABRT"),
            Reason.SCRIPT_ERROR,
            ": ModuleNotFoundError: No module named 'flash_attention_9', train.py line 41",
        ),
        (
            "file.write(data)",
            "OSError: [Errno 28] No space left on device",
            (-6, "SIGABRT"),
            Reason.DISK_FULL,
            ": no space left on the disk: OSError: [Errno 28] No space left on device, train.py line 41",
        ),
        (
            "torch.save(state, path)",
            "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598",
            (1, ""),
            Reason.DISK_FULL,
            ": a checkpoint could not be written (possibly the disk is full): RuntimeError: [enforce fail at inline_container.cc:672]"
            " . unexpected pos 704 vs 598, train.py line 41",
        ),
        (
            "loss.backward()",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 "
            "GiB of which 1.02 GiB is free. Process 4242 has 78.12 GiB memory in use.",
            (-6, "SIGABRT"),
            Reason.OUT_OF_MEMORY,
            ": CUDA out of memory, 2.00 GiB requested, 1.02 GiB of 79.15 GiB free on GPU 0, train.py line 41",
        ),
        (
            "x.cuda()",
            "RuntimeError: CUDA error: out of memory",
            (1, ""),
            Reason.OUT_OF_MEMORY,
            ": CUDA out of memory, train.py line 41",
        ),
        (
            "torch.empty(1 << 34)",
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
            (1, ""),
            Reason.OUT_OF_MEMORY,
            ": not enough memory, 64.00 GiB requested: RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
            "allocate memory: you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory), train.py "
            "line 41",
        ),
        (
            "for batch in loader:",
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
            (1, ""),
            Reason.OUT_OF_MEMORY,
            ": a data loader's process (pid 4711) was killed (SIGKILL); the kernel does this when memory runs out, train.py line 41",
        ),
    ],
)
def test_exceptions_people_meet(
    source: str, exception: str, exit_code: tuple[int, str], reason: Reason, message: str
) -> None:
    rank_errs = {0: raised(0, source, exception) + "terminate called without an active exception\n", 1: ""}
    verdict = torchrun_failed(rank_errs, torchrun((0, *exit_code), (1, -15, "SIGTERM")))
    assert (verdict.reason, verdict.message) == (reason, f"rank 0 on gpu-1{message}")


@pytest.mark.parametrize(
    ("exit_code", "signal", "stderr", "reason", "message"),
    [
        (-9, "SIGKILL", "", Reason.KILLED, " was killed (SIGKILL); the kernel does this when memory runs out"),
        (-11, "SIGSEGV", "", Reason.KILLED, " crashed (SIGSEGV, an invalid memory access in native code)"),
        (
            -6, "SIGABRT", "free(): invalid pointer\n", Reason.KILLED,
            " was ended by a signal (SIGABRT); last line: free(): invalid pointer",
        ),
        (3, "", "", Reason.EXIT_CODE, ": exit code 3, no traceback"),
        (
            2, "", "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lr 1\n", Reason.EXIT_CODE,
            ": bad argument (exit code 2): train.py: error: unrecognized arguments: --lr 1",
        ),
        (
            2, "", "/usr/bin/python3: can't open file '/home/ana/nothere.py': [Errno 2] No such file or directory\n",
            Reason.SCRIPT_MISSING, ": the script /home/ana/nothere.py cannot be opened: No such file or directory",
        ),
        (
            1, "", "/usr/bin/python3: No module named nothere\n", Reason.SCRIPT_MISSING,
            ": there is no module nothere to run",
        ),
        (
            1, "", '  File "/home/ana/train.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n',
            Reason.SCRIPT_ERROR, ": SyntaxError: invalid syntax, train.py line 1",
        ),
    ],
)  # fmt: skip
def test_ends_without_a_traceback(exit_code: int, signal: str, stderr: str, reason: Reason, message: str) -> None:
    verdict = torchrun_failed({0: PEER_GONE, 1: stderr}, torchrun((1, exit_code, signal), ENDED_BY_TORCHRUN))
    assert (verdict.reason, verdict.message) == (reason, f"rank 1 on gpu-1{message}")
    assert verdict.error is not None and verdict.error.signal == (signal or None)


@pytest.mark.parametrize(
    "exception",
    [
        "UnicodeEncodeError: 'ascii' codec can't encode character '\\xe9' in position 3: ordinal not in range(128)",
        "UnicodeDecodeError: 'ascii' codec can't decode byte 0xc3 in position 0: ordinal not in range(128)",
    ],
)
def test_an_ascii_locale_is_named_with_the_variable_that_mends_it(exception: str) -> None:
    verdict = torchrun_failed({0: raised(3, "print(name)", exception), 1: ""}, torchrun((0, 1, "")))
    assert verdict.reason is Reason.SCRIPT_ERROR and exception in (verdict.message or "")
    assert "--env PYTHONUTF8=1" in (verdict.next_step or "")


def test_a_kill_for_memory_is_called_that_where_the_kernel_tells() -> None:
    verdict = torchrun_failed({0: "", 1: ""}, torchrun((1, -9, "SIGKILL"), ENDED_BY_TORCHRUN), out_of_memory_kills=1)
    assert verdict.reason is Reason.OUT_OF_MEMORY
    assert verdict.message == "rank 1 on gpu-1 was killed by the kernel because memory ran out (SIGKILL)"


def test_sentence_of_a_memory_kill_has_the_last_samples() -> None:
    last = "rank 1's data-loader workers 20.3 GiB, rank 1 2.0 GiB; 0.1 GiB free"
    killed = torchrun((1, -9, "SIGKILL"), ENDED_BY_TORCHRUN)
    verdict = torchrun_failed({0: "", 1: ""}, killed, out_of_memory_kills=1, host_memory=last)
    assert (verdict.message or "").endswith(f"(SIGKILL); last sample: {last}")


def test_a_snapshot_of_the_device_explains_the_failed_allocation_of_that_rank() -> None:
    stderr = raised(41, "loss.backward()", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB.")
    line = AllocatingLine(
        file="/x/train.py", line=12, function="forward", bytes=40 << 30, count=9, largest_bytes=8 << 30
    )
    memory = device(other=52, requested=8, unused=10, rank=1, lines=[line])
    killed = torchrun((1, 1, ""), ENDED_BY_TORCHRUN)
    verdict = torchrun_failed({0: PEER_GONE, 1: stderr}, killed, device_memory={1: memory, 0: device()})
    assert (verdict.message or "").startswith(
        "rank 1 on gpu-1: CUDA out of memory, 8 GiB requested, 2 GiB of 80 GiB free on GPU 0, "
        "10 GiB unused between tensors; in use: 76 % activations and buffers"
    )
    assert verdict.error is not None and verdict.error.memory == memory
    assert "expandable_segments:True" in (verdict.next_step or "")
    assert "40 GiB of activations and buffers, was allocated in line 12 of" in (verdict.next_step or "")


def test_a_caught_failed_allocation_is_not_the_cause_of_another_error() -> None:
    stderr = raised(41, "go()", "ValueError: labels")
    killed = torchrun((1, 1, ""), ENDED_BY_TORCHRUN)
    verdict = torchrun_failed({0: PEER_GONE, 1: stderr}, killed, device_memory={1: device()})
    assert verdict.reason is Reason.SCRIPT_ERROR
    assert verdict.error is not None and verdict.error.memory is None


def test_an_earlier_caught_exception_does_not_hide_a_kill() -> None:
    stderr = raised(1, "retry()", "TimeoutError: slow disk") + "retrying\n"
    verdict = torchrun_failed({0: PEER_GONE, 1: stderr}, torchrun((1, -9, "SIGKILL"), ENDED_BY_TORCHRUN))
    assert verdict.reason is Reason.KILLED


ADDRESS_IN_USE = LAUNCHER_FRAMES.replace(
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 29777, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
)
BAD_ARGUMENT = LAUNCHER_FRAMES.replace(
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "ValueError: Unsupported nproc_per_node value: zzz",
)


@pytest.mark.parametrize(
    ("facts", "reason", "message"),
    [
        (
            EndFacts(exit_code=1, node="gpu-1", launcher_err=ADDRESS_IN_USE), Reason.PORT_IN_USE,
            "torchrun could not start on gpu-1: port 29777 is in use by another program",
        ),
        (
            EndFacts(exit_code=1, node="gpu-1", launcher_err=BAD_ARGUMENT), Reason.LAUNCH_FAILED,
            "torchrun could not start on gpu-1: ValueError: Unsupported nproc_per_node value: zzz",
        ),
        (
            EndFacts(exit_code=1, node="gpu-1", launcher_err="/usr/bin/python3: No module named torch\n"),
            Reason.LAUNCH_FAILED,
            "torchrun could not start on gpu-1: the Python that trains has no torch",
        ),
        (
            EndFacts(exit_code=-9, signal="SIGKILL", node="gpu-1", rank_errs={0: "", 1: ""}), Reason.KILLED,
            "torchrun on gpu-1 was killed (SIGKILL); the kernel does this when memory runs out",
        ),
        (
            EndFacts(node="gpu-1", launch_error="[Errno 2] No such file or directory: '/opt/none/python'"),
            Reason.SCRIPT_MISSING,
            "torchrun could not be started on gpu-1: [Errno 2] No such file or directory: '/opt/none/python'",
        ),
        (
            EndFacts(node="gpu-1", launch_error="[Errno 7] Argument list too long: 'python'", launcher="python"),
            Reason.LAUNCH_FAILED,
            "the training could not be started on gpu-1: its arguments and environment are larger than Linux passes to a program (E2BIG)",
        ),
        (
            EndFacts(node="gpu-1"), Reason.NODE_LOST,
            "torchrun ended on gpu-1 without a report: the node or its supervisor went down",
        ),
        (
            EndFacts(exit_code=1, node="gpu-1", launcher_err="DistNetworkError: store gone\n", rank_errs={0: "", 1: ""}),
            Reason.EXIT_CODE,
            "torchrun on gpu-1 ended with exit code 1: DistNetworkError: store gone",
        ),
    ],
)  # fmt: skip
def test_when_the_launcher_itself_is_the_matter(facts: EndFacts, reason: Reason, message: str) -> None:
    verdict = explain_end(facts)
    assert (verdict.state, verdict.reason, verdict.message) == ("failed", reason, message)
    assert verdict.error is not None and verdict.error.rank is None


RECORDED = (
    '{"message": {"message": "ValueError: bad thing", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\n'
    '  File \\"/home/ana/train.py\\", line 38, in main\\n    step(rank)\\nValueError: bad thing\\n", '
    '"timestamp": "1795231504"}, "errorCode": 1}}'
)


def test_diagnosis_uses_the_file_that_record_wrote() -> None:
    verdict = torchrun_failed({0: PEER_GONE, 1: ""}, torchrun((1, 1, ""), ENDED_BY_TORCHRUN), error_file=RECORDED)
    assert verdict.message == "rank 1 on gpu-1: ValueError: bad thing, train.py line 38"
    assert verdict.error is not None and verdict.error.at == 1795231504.0


@pytest.mark.parametrize(
    "error_file", ["", "{", "[]", '{"message": null}', '{"message": {"extraInfo": {"timestamp": "x"}}}']
)
def test_a_strange_error_file_does_no_harm(error_file: str) -> None:
    assert torchrun_failed({0: "", 1: ""}, torchrun((1, 3, "")), error_file=error_file).reason is Reason.EXIT_CODE


def test_a_single_process_that_is_killed() -> None:
    verdict = python_failed("", exit_code=-9, signal="SIGKILL")
    assert verdict.message == "rank 0 on gpu-1 was killed (SIGKILL); the kernel does this when memory runs out"


def test_a_script_given_to_python_that_does_not_exist() -> None:
    stderr = "/usr/bin/python3: can't open file '/home/ana/nothere.py': [Errno 2] No such file or directory\n"
    assert python_failed(stderr, exit_code=2).reason is Reason.SCRIPT_MISSING


@pytest.mark.parametrize("text", ["\0\xff" * 1000, "x" * 100_000, "Traceback (most recent call last):\n" * 500])
def test_garbage_in_the_logs_still_ends_in_one_short_sentence(text: str) -> None:
    for verdict in (python_failed(text), torchrun_failed({0: text, 1: text}, text + torchrun((0, 1, "")))):
        assert verdict.state == "failed" and len(verdict.message or "") < 500
