"""The messages in TensorBoard's event files as far as they are read, and the scalars in their tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from worker.streams.protobuf_schema import message_class

Event = message_class(
    {
        "Event": "wall_time:1:double step:2:int64 summary:5:Summary",
        "Summary": "value:1:Value*",
        "Value": "tag:1 simple_value:2:float tensor:8:Tensor metadata:9:Metadata",
        "Metadata": "plugin_data:1:PluginData",
        "PluginData": "plugin_name:1 content:2:bytes",
        "Tensor": "dtype:1:int32 tensor_shape:2:Shape tensor_content:4:bytes float_val:5:float* double_val:6:double* "
        "int_val:7:int32* int64_val:10:int64* half_val:13:int32*",
        "Shape": "dim:2:Dimension*",
        "Dimension": "size:1:int64",
    },
    "Event",
)
"""Of `event.proto`, `summary.proto` and `tensor.proto`."""
Hyperparameters = message_class(
    {
        "Hyperparameters": "session_start_info:3:Start",
        "Start": "hparams:1:Entry*",
        "Entry": "key:1 value:2:Value",
        "Value": "number_value:2:double string_value:3 bool_value:4:bool",
    },
    "Hyperparameters",
)
"""What the plugin `hparams` keeps in an event (`plugin_data.proto`)."""
DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_BFLOAT16, DT_HALF = 1, 2, 3, 9, 14, 19
"""Types of a tensor (`types.proto`)."""
_CONTENT = {
    DT_FLOAT: "<f",
    DT_DOUBLE: "<d",
    DT_HALF: "<e",
    DT_INT32: "<i",
    DT_INT64: "<q",
}
_VALUES = {
    DT_FLOAT: "float_val",
    DT_DOUBLE: "double_val",
    DT_HALF: "half_val",
    DT_BFLOAT16: "half_val",
    DT_INT32: "int_val",
    DT_INT64: "int64_val",
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
    if tensor.dtype in (DT_HALF, DT_BFLOAT16):
        return _from_content(tensor.dtype, struct.pack("<H", int(values[0]) & 0xFFFF))
    return float(values[0])


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == DT_BFLOAT16 and len(content) == 2:
        dtype, content = DT_FLOAT, b"\0\0" + content
    layout = _CONTENT.get(dtype)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])
