"""Files of loggers as their packages write them: W&B's and Neptune's, made without a run of those."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

BLOCK = 32 * 1024
WALL = 1_700_000_000


def write_wandb(path: Path, records: Iterable[Any]) -> None:
    """Write protobuf records in LevelDB's log format, in chunks that end at the borders of blocks."""
    path.parent.mkdir(parents=True)
    content = bytearray(b":W&B\xee\x1b\x00")
    for record in records:
        data, is_first = record.SerializeToString(), True
        while data or is_first:
            if (left := BLOCK - len(content) % BLOCK) < 8:
                content += bytes(left)
                left = BLOCK
            part, data = data[: left - 7], data[left - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[is_first, not data]
            content += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            is_first = False
    path.write_bytes(content)


def history(step: int, **values: Any) -> Any:
    """A row of `Run.log`."""
    from wandb.proto.wandb_internal_pb2 import Record

    record = Record()
    for name, value in (values | {"_step": step, "_timestamp": WALL + step / 2}).items():
        nested = name.split("__")
        item = record.history.item.add(value_json=json.dumps(value))
        if len(nested) > 1:
            item.nested_key.extend(nested)
        else:
            item.key = name
    return record


def write_neptune(folder: Path, part: int, rows: Iterable[dict[str, Any]]) -> None:
    """Write one part of a run in the schema of neptune-exporter."""
    import pyarrow as pa
    import pyarrow.parquet

    names = "project_id run_id attribute_path attribute_type string_value".split()
    fields = [(name, pa.string()) for name in names]
    fields += [("step", pa.decimal128(18, 6)), ("timestamp", pa.timestamp("ms", tz="UTC"))]
    fields += [("int_value", pa.int64()), ("float_value", pa.float64()), ("bool_value", pa.bool_())]
    fields += [("datetime_value", pa.timestamp("ms", tz="UTC")), ("string_set_value", pa.list_(pa.string()))]
    full = [{"project_id": "team/vision", "run_id": "VIS-1"} | row for row in rows]
    folder.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(full, schema=pa.schema(fields))
    pyarrow.parquet.write_table(table, folder / f"VIS-1_part_{part}.parquet")


def neptune_points(name: str, steps: Iterable[float]) -> list[dict[str, Any]]:
    """The rows of a series whose values are its steps."""
    return [
        {
            "attribute_path": name, "attribute_type": "float_series", "step": Decimal(str(step)),
            "float_value": float(step), "timestamp": datetime.fromtimestamp(WALL + step, UTC),
        }
        for step in steps
    ]  # fmt: skip
