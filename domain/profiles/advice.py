"""Recommendations that follow from a profile; none where the trace does not show it."""

from __future__ import annotations

from collections.abc import Iterator

from domain.profile_records import DeviceTimes, Overview
from domain.text.formats import milliseconds

NOTABLE = 0.1
"""Share of a step below which nothing is recommended."""
IDLE = 0.3
OUTSIDE = 0.5
_WAITS_FOR_DEVICE = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")


def advise(view: Overview) -> list[str]:
    """Return one sentence for each part of the steps that can be made shorter, the longest wait first."""
    return [*_data(view), *_communication(view), *(_device(view, view.device) if view.device else _cpu(view))]


def _data(view: Overview) -> Iterator[str]:
    if view.data_s > NOTABLE * view.seconds:
        yield (
            f"{view.data_s / view.seconds:.0%} of the time it waits for data: more workers in the DataLoader, "
            "or less work for each sample."
        )


def _communication(view: Overview) -> Iterator[str]:
    exposed_s = view.device.exposed_communication_s if view.device else view.exposed_communication_s
    if exposed_s > NOTABLE * view.seconds:
        yield (
            f"{exposed_s / view.seconds:.0%} of the time it only communicates, or waits for slower ranks: compare "
            "the ranks; if all wait alike, accumulate gradients over more micro-steps, or send bf16 (a DDP "
            "communication hook)."
        )


def _device(view: Overview, device: DeviceTimes) -> Iterator[str]:
    if 1 - device.busy_share > IDLE:
        yield (
            f"The device is idle {1 - device.busy_share:.0%} of the time, in {device.gaps.count:,} gaps between "
            f"kernels (the longest {milliseconds(device.gaps.longest_s)}): a larger batch, or torch.compile, which "
            "launches fewer kernels."
        )
    waits_s = sum(operator.self_s for operator in view.operators if operator.name in _WAITS_FOR_DEVICE)
    if waits_s > NOTABLE * view.seconds:
        yield (
            f"{waits_s / view.seconds:.0%} of the time Python waits for values from the device (.item(), "
            "print(loss)): read them less often."
        )


def _cpu(view: Overview) -> Iterator[str]:
    outside_s = view.gaps.total_s - view.data_s - view.exposed_communication_s
    if outside_s > OUTSIDE * view.seconds:
        yield (
            f"{outside_s / view.seconds:.0%} of the time runs outside torch's operators: the flame graph shows "
            "which Python functions take it."
        )
