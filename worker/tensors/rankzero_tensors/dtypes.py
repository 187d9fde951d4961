"""Data types by torch's names, and by those of safetensors' headers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .sources import CheckpointRefused, TensorFacts

CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "complex64": "C64",
}
"""torch's name -> safetensors' code. What safetensors cannot hold (complex128, quantized types) is not here."""
NAMES = {code: name for name, code in CODES.items()}


def facts_of(shape: Sequence[int], dtype: torch.dtype) -> TensorFacts:
    """The facts of a tensor of this shape and type."""
    return TensorFacts(tuple(shape), str(dtype).removeprefix("torch."), math.prod(shape) * dtype.itemsize)


def torch_dtype(name: str) -> torch.dtype:
    """The type of this name. Raises CheckpointRefused if this torch lacks it."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointRefused(
            f"Its tensors are {name}, which torch {torch.__version__} lacks: use a newer torch for the run."
        )
    return dtype
