"""Tests this node's devices on request, with the Python that trains, in a thread of its own."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from domain.clock import SYSTEM_CLOCK, Clock
from domain.health.testing import LIMIT_S as ANSWER_LIMIT_S
from domain.health.testing import DesiredTest, DeviceResult, TestAnswer, worst_of_each_part
from domain.launch.plan import visible_devices
from worker.hardware import device_test
from worker.launch.interpreter import Unusable, find
from worker.launch.preparation import LocalNode, free_port, training_environment
from worker.node import processes
from worker.session.client import Client
from worker.session.failures import RequestRefused, ServerAway

log = logging.getLogger(__name__)
PROGRAM = str(device_test.__file__)
LIMIT_S = ANSWER_LIMIT_S - 60.0
"""For all programs together; the server waits a little longer."""
SECONDS = {"cuda": 10.0, "cpu": 2.0}
MEET_LIMIT_S = 90.0
MOST_CPU_RANKS = 2
"""CPU slots share their cores and their memory."""
Background = Callable[[Callable[[], None]], object]


class HardwareTests:
    """The tests of one node's devices; thread-safe."""

    def __init__(self, node: LocalNode, client: Client, background: Background, clock: Clock = SYSTEM_CLOCK) -> None:
        self._node, self._client, self._background, self._clock = node, client, background, clock
        self._started: set[int] = set()
        self._lock = threading.Lock()

    def set_desired_tests(self, requests: Sequence[DesiredTest]) -> None:
        """Replace the desired tests and start those that are new."""
        with self._lock:
            self._started &= {request.test_id for request in requests}
            for request in requests:
                if request.test_id not in self._started:
                    self._started.add(request.test_id)
                    self._background(lambda request=request: self._answer(request))  # type: ignore[misc]

    def _answer(self, request: DesiredTest) -> None:
        answer = test_devices(request, self._node.python, clock=self._clock)
        try:
            self._client.answer_test(request.test_id, answer)
        except (ServerAway, RequestRefused) as error:
            log.info("test %d was not accepted: %s", request.test_id, error)
            with self._lock:  # the next poll starts it again
                self._started.discard(request.test_id)


def test_devices(
    request: DesiredTest, python: str, limit_s: float = LIMIT_S, clock: Clock = SYSTEM_CLOCK
) -> TestAnswer:
    """Test devices, all at the same time: a program each on GPUs, two programs for all CPU slots."""
    devices = request.devices if request.kind == "cuda" else [""] * min(MOST_CPU_RANKS, len(request.devices))
    try:
        outputs = _run(devices, request.kind, find(python), limit_s, clock)
    except (OSError, ValueError, Unusable) as error:
        return TestAnswer(results=[DeviceResult(part="test", text=str(error)[:1000])])
    answer = TestAnswer()
    for device, (output, errors) in zip(devices, outputs, strict=True):
        results = [json.loads(line.removeprefix(device_test.MARK)) for line in output.splitlines() if _is_marked(line)]
        for one in results:
            answer.reduce_bytes_per_s = one.pop("bytes_per_s") or answer.reduce_bytes_per_s
            answer.results.append(DeviceResult(device=device, **one))
        parts = 3 if len(devices) > 1 else 2
        if len(results) < parts:
            answer.results.append(DeviceResult(device=device, part="test", text=_why(errors, len(results), parts)))
    answer.results = worst_of_each_part(answer.results)
    return answer


test_devices.__test__ = False  # type: ignore[attr-defined]  # no test case of ours


def _is_marked(line: str) -> bool:
    return line.startswith(device_test.MARK)


def _why(errors: str, completed_parts: int, parts: int) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return f"{completed_parts} of {parts} parts were done" + (f": {lines[-1][:500]}" if lines else "")


def _run(devices: Sequence[str], kind: str, python: str, limit_s: float, clock: Clock) -> list[tuple[str, str]]:
    """Run a program for each device; return what each printed. All have ended then."""
    program = f"exec(compile(open({PROGRAM!r}).read(), {PROGRAM!r}, 'exec'), {{'__name__': '__main__'}})"
    common = {
        "ranks": len(devices), "kind": kind, "seconds": SECONDS[kind], "address": "127.0.0.1",
        "port": free_port("127.0.0.1"), "meet_limit_s": MEET_LIMIT_S,
    }  # fmt: skip
    deadline = clock.now() + limit_s
    with ExitStack() as stack:
        started = []
        for rank, device in enumerate(devices):
            settings = json.dumps(common | {"rank": rank})
            process = subprocess.Popen(
                [python, "-c", program, settings], env=_environment(device), cwd="/", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            started.append(process)
        return [_output(process, max(0.0, deadline - clock.now())) for process in started]


def _output(process: subprocess.Popen[str], limit_s: float) -> tuple[str, str]:
    try:
        return process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        return output, f"{errors}\nit did not end in time"


def _environment(device: str) -> dict[str, str]:
    env = training_environment(os.environ) | {"OMP_NUM_THREADS": "1"} | visible_devices([device] if device else ())
    return env | {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", processes.CHECK_VARIABLE: "1"}
