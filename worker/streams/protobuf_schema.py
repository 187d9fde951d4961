"""Make the classes of protobuf messages from the few fields that are read, without the packages that write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]


def message_class(fields: Mapping[str, str], name: str) -> Any:
    """Return the class of one of the messages.

    `fields` has those of each message as NAME:NUMBER:TYPE, by default a text, with * repeated."""
    schema = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="rankzero", syntax="proto3")
    for message_name, texts in fields.items():
        message = schema.message_type.add(name=message_name)
        for text in texts.split():
            field, number, kind = [*text.split(":"), ""][:3]
            _add_field(message, field, int(number), kind, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"rankzero.{name}"))


def _add_field(message: Any, name: str, number: int, kind: str, messages: Mapping[str, str]) -> None:
    types = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(name=name, number=number, label=types.LABEL_OPTIONAL)
    if kind.endswith("*"):
        field.label, kind = types.LABEL_REPEATED, kind[:-1]
    if kind in messages:
        field.type, field.type_name = types.TYPE_MESSAGE, f".rankzero.{kind}"
        return
    field.type = types.Type.Value(f"TYPE_{(kind or 'string').upper()}")
    if field.label == types.LABEL_OPTIONAL:  # told apart from its default, as `HasField` asks
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
