"""The program that tests a device, with a double of torch's devices where results are to be wrong."""

from __future__ import annotations

import sys

import pytest

from domain.health.testing import DesiredTest, DeviceResult
from worker.hardware import device_test
from worker.hardware.testing import test_devices as run_test

torch = pytest.importorskip("torch")


def test_products_of_whole_numbers_are_exact():
    assert device_test.products(torch, torch.device("cpu"), 0.0) == (True, "1 products, all right", None)


def test_a_single_wrong_number_is_found(monkeypatch):
    cases = list(device_test.known_products(torch, torch.device("cpu")))
    cases[0][2][7, 7] += 1
    monkeypatch.setattr(device_test, "known_products", lambda *_: iter(cases))
    assert device_test.products(torch, torch.device("cpu"), 0.0) == (False, "1 products, 1 wrong numbers", None)


def test_a_bit_that_does_not_stay_is_found(monkeypatch):
    class Weak:
        """A chunk whose first number always reads as zero."""

        def __init__(self, *size, **more) -> None:
            self.held = torch.zeros(8, dtype=torch.int32)

        def fill_(self, pattern: int) -> None:
            self.held.fill_(pattern)
            self.held[0] = 0

        def __ne__(self, pattern: object):
            return self.held != pattern

    is_right, text, _ = device_test.memory(Torch(Weak), torch.device("cpu"))
    assert not is_right and text == "256 MiB, 3 wrong numbers"


class Torch:
    """torch with other memory."""

    def __init__(self, empty: object) -> None:
        self.empty, self.int32 = empty, torch.int32


@pytest.mark.parametrize(
    ("words", "is_right"),
    [("CUDA error: uncorrectable ECC error encountered", False), ("CUDA out of memory", None)],
)
def test_what_cannot_be_done_is_no_wrong_result(words, is_right, capsys):
    def fail() -> tuple[bool, str, float | None]:
        raise RuntimeError(words)

    device_test.tell("memory", fail)
    printed = capsys.readouterr().out
    assert f'"is_right": {"null" if is_right is None else "false"}' in printed and words in printed


def test_a_python_without_torch_says_so(tmp_path):
    answer = run_test(DesiredTest(test_id=1, devices=["cpu:0"], kind="cpu"), "/usr/bin/false")
    (result,) = answer.results
    assert result.is_right is None and result.part == "test"
    missing = run_test(DesiredTest(test_id=1, devices=["cpu:0"], kind="cpu"), str(tmp_path / "python"))
    assert [result.is_right for result in missing.results] == [None]


@pytest.mark.long
def test_cpu_slots_pass_with_the_speed_of_their_all_reduce():
    answer = run_test(DesiredTest(test_id=1, devices=["cpu:0", "cpu:1", "cpu:2"], kind="cpu"), sys.executable)
    assert {(result.part, result.is_right) for result in answer.results} == {
        ("matrix products", True), ("memory", True), ("all-reduce", True)
    }  # fmt: skip
    assert len(answer.results) == 3, "one of each part"
    assert all(isinstance(result, DeviceResult) and not result.device for result in answer.results)
    assert answer.reduce_bytes_per_s is not None and answer.reduce_bytes_per_s > 1e6
