"""An all-reduce between two processes of this machine, as two nodes would make it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from domain.assignments import CheckPair
from tests.end_to_end.product import free_port
from worker.preflight import checks

pytestmark = pytest.mark.real


def pair(rank: int, port: int) -> CheckPair:
    return CheckPair(rank=rank, address="127.0.0.1", port=port, backend="gloo")


def test_two_processes_measure_what_goes_between_them(monkeypatch) -> None:
    monkeypatch.setattr(checks, "SECONDS", 0.1)
    port = free_port()
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda rank: checks.measure(pair(rank, port), sys.executable, "lo", []), (0, 1)))
    assert all(each.problem is None and each.bytes_per_s > 1e5 for each in both), both


def test_a_python_without_torch_and_one_that_is_missing_say_so() -> None:
    (measured,) = (checks.measure(pair(0, 1), "/nowhere/python", "lo", []),)
    assert measured.bytes_per_s is None and "/nowhere/python" in str(measured.problem)
    failed = checks.measure(pair(0, 1), "/bin/false", "lo", [])
    assert failed.problem == "no all-reduce: exit code 1"
