"""What a source of tensors holds, compared with what was saved."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from worker.tensors.rankzero_tensors.sources import TensorSource


def assert_holds(source: TensorSource, expected: Mapping[str, torch.Tensor]) -> None:
    """The source has these tensors with their types, and no others."""
    assert set(source.tensors) == set(expected)
    for name, value in expected.items():
        tensor, facts = source.read(name), source.tensors[name]
        assert (facts.shape, facts.dtype) == (tuple(value.shape), str(value.dtype).removeprefix("torch."))
        assert facts.nbytes == value.nbytes
        assert tensor.is_contiguous() and not tensor.requires_grad
        torch.testing.assert_close(tensor, value, rtol=0, atol=0)
        for place, part in source.samples(name):
            torch.testing.assert_close(part, value[place], rtol=0, atol=0)
    source.close()
