"""Read scalars that newer TensorFlow and some loggers write as tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tensorboard.compat.proto import types_pb2

_CONTENT = {
    types_pb2.DT_FLOAT: "<f",
    types_pb2.DT_DOUBLE: "<d",
    types_pb2.DT_HALF: "<e",
    types_pb2.DT_INT32: "<i",
    types_pb2.DT_INT64: "<q",
}
_VALUES = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_HALF: "half_val",
    types_pb2.DT_BFLOAT16: "half_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT64: "int64_val",
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
    if tensor.dtype in (types_pb2.DT_HALF, types_pb2.DT_BFLOAT16):
        return _from_content(tensor.dtype, struct.pack("<H", int(values[0]) & 0xFFFF))
    return float(values[0])


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == types_pb2.DT_BFLOAT16 and len(content) == 2:
        dtype, content = types_pb2.DT_FLOAT, b"\0\0" + content
    layout = _CONTENT.get(dtype)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])
