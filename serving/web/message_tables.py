"""Make classes of protocol buffers from tables of their fields.

Code that `protoc` generates works with few versions of protobuf, and its names would
collide with those of `tensorflow-serving-api` in one process. These classes are made by
the installed protobuf, in a pool of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    wrappers_pb2,
)

Field = tuple[str, int, str]
"""Name, number and type. A type in capitals is a scalar, such as "INT64"; one that
begins with a dot is a message or enum by its full name. Before it may stand "repeated",
or "map" for a map from strings to messages."""

_IMPORTED = (any_pb2, wrappers_pb2)


def message_classes(
    package: str,
    messages: Mapping[str, Sequence[Field]],
    enums: Mapping[str, Mapping[str, int]] | None = None,
) -> Callable[[str], Any]:
    """Make the classes of a package.

    Args:
        package: What stands before the names of its messages.
        messages: The fields of each message, by its name.
        enums: The numbers of each enum, by their names. Default: none.

    Returns:
        A function that returns the class of a message by its name.
    """
    pool = descriptor_pool.DescriptorPool()
    for imported in _IMPORTED:
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto",
        package=package,
        dependency=[imported.DESCRIPTOR.name for imported in _IMPORTED],
        syntax="proto3",
    )
    enums = enums or {}
    for name, numbers in enums.items():
        enum = file.enum_type.add(name=name)
        for word, number in numbers.items():
            enum.value.add(name=word, number=number)
    of_enums = {f".{package}.{name}" for name in enums}
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, field, f".{package}.{name}", of_enums)
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{package}.{name}")
    )


def _add_field(message: Any, field: Field, owner: str, enums: set[str]) -> None:
    name, number, kind = field
    added = message.field.add(name=name, number=number)
    form, _, rest = kind.rpartition(" ")
    added.label = added.LABEL_REPEATED if form else added.LABEL_OPTIONAL
    if form == "map":
        entry = message.nested_type.add(
            name=f"{name.title().replace('_', '')}Entry", options={"map_entry": True}
        )
        _add_field(entry, ("key", 1, "STRING"), "", enums)
        _add_field(entry, ("value", 2, rest), "", enums)
        rest = f"{owner}.{entry.name}"
    if rest.startswith("."):
        added.type = added.TYPE_ENUM if rest in enums else added.TYPE_MESSAGE
        added.type_name = rest
    else:
        added.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{rest}")
