"""Count the parts of a message before it is parsed, since each takes memory.

An empty string takes 2 bytes of a `PredictRequest` and, parsed, up to a hundred: 64 MiB
of them would fill a container of 4 GiB.
"""

# What is walked into: the number of a field in a message, and which message it holds.
_TENSOR = "TensorProto"
_NESTED: dict[str, dict[int, str]] = {
    "PredictRequest": {2: "InputsEntry"},
    "InputsEntry": {2: _TENSOR},
    _TENSOR: {2: "TensorShapeProto"},
    "TensorShapeProto": {},
}

# Of a tensor: lists of numbers, of which one byte takes up to 16, and messages that no
# request needs, which may be of parts of 2 bytes.
_BYTES_A_PART = {7: 32, 10: 32, 11: 32, 13: 32, 16: 32, 17: 32, 14: 2, 15: 2}


def has_more_parts(data: bytes, most: int) -> bool:
    """Return whether a `PredictRequest` has more parts than it may.

    Args:
        data: The message as it came. Whether it is one is not checked.
        most: Fields and elements of lists that it may have, at least 1. 32 bytes of a
            packed list of whole numbers count as one.
    """
    parts = 0
    messages = [(0, len(data), "PredictRequest")]
    try:
        while messages:
            position, end, kind = messages.pop()
            while position < end:
                tag, position = _varint(data, position)
                field, wire = tag >> 3, tag & 7
                size = 0
                if wire == 0:
                    _, position = _varint(data, position)
                elif wire == 1:
                    size = 8
                elif wire == 2:
                    size, position = _varint(data, position)
                    if inner := _NESTED[kind].get(field):
                        messages.append((position, min(position + size, end), inner))
                    elif kind == _TENSOR and field in _BYTES_A_PART:
                        parts += size // _BYTES_A_PART[field]
                elif wire == 5:
                    size = 4
                position += size
                parts += 1
                if parts > most:
                    return True
    except IndexError:  # cut short, which the parser says
        pass
    return False


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, position
