"""Events as TensorBoard writes them."""

from __future__ import annotations

import struct

from tensorboard.compat.proto import event_pb2

from worker.streams.events import masked_crc


def record(data: bytes) -> bytes:
    header = struct.pack("<Q", len(data))
    return header + struct.pack("<I", masked_crc(header)) + data + struct.pack("<I", masked_crc(data))


def scalar(step: int, value: float, tag: str = "train/loss", wall: float = 1.5) -> bytes:
    event = event_pb2.Event(step=step, wall_time=wall)
    event.summary.value.add(tag=tag, simple_value=value)
    return record(event.SerializeToString())
