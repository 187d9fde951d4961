"""The messages in TensorBoard's event files, as far as they are read."""

from __future__ import annotations

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
