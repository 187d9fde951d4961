"""A tensor's values in blocks of float64, so that the memory for them is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import torch

BLOCK_VALUES = 1 << 20


def have_numbers(tensor: torch.Tensor) -> bool:
    """Whether torch converts the values of this dtype, which it does not of packed ones, such as float4_e2m1fn_x2."""
    try:
        tensor.reshape(-1)[:1].to(torch.complex128)
    except RuntimeError:
        return False
    return True


def blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the values in float64, of complex ones the magnitudes."""
    for part in torch.split(tensor.reshape(-1), BLOCK_VALUES):
        yield part.to(torch.complex128).abs() if part.is_complex() else part.to(torch.float64)


def paired_blocks(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the values of both in float64; where one is complex, the real and the imaginary parts of both."""
    is_complex = one.is_complex() or other.is_complex()
    parts = zip(torch.split(one.reshape(-1), BLOCK_VALUES), torch.split(other.reshape(-1), BLOCK_VALUES), strict=True)
    for first, second in parts:
        if is_complex:
            yield _real_parts(first), _real_parts(second)
        else:
            yield first.to(torch.float64), second.to(torch.float64)


def _real_parts(block: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(block.to(torch.complex128)).reshape(-1)
