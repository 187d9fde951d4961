"""Read scalars that newer TensorFlow and some loggers write as tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from worker.streams import event_messages as types

_CONTENT = {
    types.DT_FLOAT: "<f",
    types.DT_DOUBLE: "<d",
    types.DT_HALF: "<e",
    types.DT_INT32: "<i",
    types.DT_INT64: "<q",
}
_VALUES = {
    types.DT_FLOAT: "float_val",
    types.DT_DOUBLE: "double_val",
    types.DT_HALF: "half_val",
    types.DT_BFLOAT16: "half_val",
    types.DT_INT32: "int_val",
    types.DT_INT64: "int64_val",
}


def tensor_scalar(tensor: Any) -> float | None:
    """Return the tensor's number if it has exactly one, else None."""
    dimensions = tensor.tensor_shape.dim
    if len(dimensions) > 1 or any(dimension.size != 1 for dimension in dimensions):
        return None
    if content := tensor.tensor_content:
        return _from_content(tensor.dtype, content)
    values: Sequence[float] = getattr(tensor, _VALUES.get(tensor.dtype, ""), ())
    if len(values) != 1:
        return None
    if tensor.dtype in (types.DT_HALF, types.DT_BFLOAT16):
        return _from_content(tensor.dtype, struct.pack("<H", int(values[0]) & 0xFFFF))
    return float(values[0])


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == types.DT_BFLOAT16 and len(content) == 2:
        dtype, content = types.DT_FLOAT, b"\0\0" + content
    layout = _CONTENT.get(dtype)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])
