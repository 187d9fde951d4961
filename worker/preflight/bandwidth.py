"""Measures an all-reduce with one other node, with the Python that trains."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence

from domain.messages import Measured
from domain.spec import CheckPair
from worker.launch.interpreter import Unusable, find
from worker.launch.preparation import training_environment
from worker.preflight import allreduce

PROGRAM = str(allreduce.__file__)
LIMIT_S = 150.0
"""Mostly for importing torch from a cold disk; the server waits a little longer."""
SECONDS = 2.0
MEET_LIMIT_S = 90.0
"""Allows for the time in which the other node imports torch."""


def measure(
    pair: CheckPair, python: str, interface: str | None, devices: Sequence[str], limit_s: float = LIMIT_S
) -> Measured:
    """Measure the bytes per second of an all-reduce between two nodes, defined in `allreduce`."""
    settings = {
        "rank": pair.rank,
        "address": pair.address,
        "port": pair.port,
        "backend": pair.backend,
        "seconds": SECONDS,
        "meet_limit_s": MEET_LIMIT_S,
    }
    program = f"exec(compile(open({PROGRAM!r}).read(), {PROGRAM!r}, 'exec'), {{'__name__': '__main__'}})"
    try:
        completed = subprocess.run(
            [find(python), "-c", program, json.dumps(settings)],
            env=_environment(pair, interface, devices),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Measured(problem=f"no all-reduce within {limit_s:g} s")
    except (OSError, ValueError, Unusable) as error:
        return Measured(problem=str(error))
    return _read(completed)


def _environment(pair: CheckPair, interface: str | None, devices: Sequence[str]) -> dict[str, str]:
    env = training_environment(os.environ) | {"OMP_NUM_THREADS": "1"}
    if interface is not None:
        env |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    env["CUDA_VISIBLE_DEVICES"] = ",".join(devices) if pair.backend == "nccl" else ""
    return env


def _read(completed: subprocess.CompletedProcess[bytes]) -> Measured:
    for line in reversed(completed.stdout.decode(errors="replace").splitlines()):
        if line.startswith(allreduce.MARK):
            return Measured(bytes_per_s=float(line.removeprefix(allreduce.MARK)))
    error_lines = [line.strip() for line in completed.stderr.decode(errors="replace").splitlines() if line.strip()]
    return Measured(
        problem=f"no all-reduce: {error_lines[-1][:300] if error_lines else f'exit code {completed.returncode}'}"
    )
