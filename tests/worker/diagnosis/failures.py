"""Ends of attempts to diagnose, and the logs they leave."""

from __future__ import annotations

# ruff: noqa: W291 (real outputs stand here as they were)
from worker.diagnosis.diagnose import EndFacts, Verdict, explain_end

STARTED = """\
W1121 03:24:25.308000 9214 torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment variable for each \
process to be 1 in default, to avoid your system being overloaded, please further tune the variable.
W1121 03:24:28.411000 9214 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 9219 closing \
signal SIGTERM
"""
LAUNCHER_FRAMES = """\
Traceback (most recent call last):
  File "/home/ana/.venv/bin/torchrun", line 6, in <module>
    sys.exit(main())
             ^^^^^^
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
"""
SIGTERM_TO_TORCHRUN = """\
W1121 03:25:44.475000 9767 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting \
down workers
W1121 03:25:44.476000 9767 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 9772 closing \
signal SIGTERM
Traceback (most recent call last):
  File "/home/ana/.venv/bin/torchrun", line 6, in <module>
    sys.exit(main())
             ^^^^^^
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/api.py", line 86, in \
_terminate_process_handler
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 9767 got signal: 15
"""
PEER_GONE = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/ana/train.py", line 43, in <module>
[rank0]:     main()
[rank0]:   File "/home/ana/train.py", line 36, in main
[rank0]:     dist.all_reduce(t)
[rank0]:   File "/home/ana/.venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in \
all_reduce
[rank0]:     work.wait()
[rank0]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by \
peer [127.0.0.1]:15256. This is typically caused by a remote worker crashing. Check the logs of the remote worker \
before reporting an error. GLHF! 🏖️
"""


def failure(number: int, rank: int, exit_code: int, signal: str = "") -> str:
    said = (
        f"Signal {-exit_code} ({signal}) received by PID 92{rank}" if signal else "To enable traceback see: https://x"
    )
    return f"""\
[{number}]:
  time      : 2026-11-21_03:24:28
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : {exit_code} (pid: 92{rank}) {f" ({signal})" if signal else ""}
  error_file: <N/A>
  traceback : {said}
"""


def torchrun(root: tuple[int, int, str], *others: tuple[int, int, str]) -> str:
    """torchrun's stderr with its summary: (rank, exit code, signal) of the root cause and of the others."""
    line = "-" * 60 + "\n"
    rest = "".join(failure(number, *other) for number, other in enumerate(others, start=1))
    failures = f"Failures:\n{rest or '  <NO_OTHER_FAILURES>' + chr(10)}{line}"
    summary = f"train.py FAILED\n{line}{failures}Root Cause (first observed failure):\n{failure(0, *root)}"
    return f"{STARTED}{LAUNCHER_FRAMES}{'=' * 60}\n{summary}{'=' * 60}\n"


def raised(rank: int, source: str, exception: str, line: int = 41) -> str:
    """A rank's stderr: torch prefixes each line of a traceback with the rank."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/ana/train.py", line 60, in <module>',
        "    main()",
        f'  File "/home/ana/train.py", line {line}, in main',
        f"    {source}",
        exception,
    ]
    return "".join(f"[rank{rank}]: {text}\n" for text in lines)


ENDED_BY_TORCHRUN = (0, -15, "SIGTERM")


def torchrun_failed(rank_errs: dict[int, str], launcher_err: str, **facts: object) -> Verdict:
    return explain_end(
        EndFacts(exit_code=1, node="gpu-1", launcher_err=launcher_err, rank_errs=rank_errs, **facts)  # type: ignore[arg-type]
    )


def python_failed(stderr: str, exit_code: int = 1, **facts: object) -> Verdict:
    return explain_end(
        EndFacts(exit_code=exit_code, node="gpu-1", launcher="python", rank_errs={0: stderr}, **facts)  # type: ignore[arg-type]
    )
