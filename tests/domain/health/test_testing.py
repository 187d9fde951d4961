"""The results of a node's test, put together."""

from __future__ import annotations

from domain.health.testing import DeviceResult, worst_of_each_part


def test_of_each_part_on_each_device_the_worst_result_is_told():
    def of(device: str, part: str, is_right: bool | None) -> DeviceResult:
        return DeviceResult(device=device, part=part, is_right=is_right, text=f"{device} {is_right}")

    results = [
        of("", "memory", True), of("", "products", None), of("", "memory", False), of("", "products", True),
        of("", "memory", None), of("GPU-1", "memory", True), of("GPU-2", "memory", False),
    ]  # fmt: skip
    assert worst_of_each_part(results) == [results[2], results[1], results[5], results[6]]
