"""Protobuf messages whose fields are damaged, and which can mostly still be read."""

from hypothesis import strategies as st

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NUMBERS = (0, 1, 2, 7, 127, 128, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63)
_STRINGS = (b"", b"x", b"\x00", b"\xff", b"serving_default", b"example", b"a" * 3000)

# A message is a list of fields: number, wire type, and a whole number, bytes or, where
# the bytes are a message themselves, a list.


def _varint(number: int) -> bytes:
    number %= 2**64
    encoded = bytearray()
    while number >= 128:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _read(data: bytes) -> list | None:
    """Read the fields of a message; None where it is none."""
    fields, at = [], 0
    try:
        while at < len(data):
            key, at = _read_varint(data, at)
            number, wire = key >> 3, key & 7
            if not number or wire not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
                return None
            size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
            if wire == _VARINT:
                value, at = _read_varint(data, at)
            else:
                if wire == _BYTES:
                    size, at = _read_varint(data, at)
                if at + size > len(data):
                    return None
                value, at = data[at : at + size], at + size
                if wire == _BYTES and value:
                    value = _read(value) or value
            fields.append((number, wire, value))
    except IndexError:
        return None
    return fields


def _write(fields: list) -> bytes:
    data = bytearray()
    for number, wire, value in fields:
        data += _varint(number << 3 | wire)
        if wire == _VARINT:
            data += _varint(value)
        else:
            content = _write(value) if isinstance(value, list) else value
            data += (_varint(len(content)) if wire == _BYTES else b"") + content
    return bytes(data)


def _messages(fields: list) -> list[list]:
    """List a message and all messages in it."""
    found = [fields]
    for _, _, value in fields:
        if isinstance(value, list):
            found += _messages(value)
    return found


_NEW_FIELDS = st.one_of(
    st.tuples(st.integers(1, 20), st.just(_VARINT), st.sampled_from(_NUMBERS)),
    st.tuples(st.integers(1, 20), st.just(_BYTES), st.sampled_from(_STRINGS)),
    st.tuples(st.integers(1, 20), st.just(_FIXED32), st.just(b"\xff" * 4)),
    st.tuples(st.integers(1, 20), st.just(_FIXED64), st.just(b"\xff" * 8)),
    st.tuples(st.just(2**29 - 1), st.just(_VARINT), st.just(1)),
)


@st.composite
def damaged_messages(draw, originals):
    """Change, drop, double, renumber or add fields of a message in one to three places.

    Args:
        draw: Given by Hypothesis.
        originals: Encoded messages to begin with.
    """
    root = _read(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 3))):
        fields = draw(st.sampled_from(_messages(root)))
        kind = draw(
            st.sampled_from(["value", "drop", "double", "number", "add", "wrap"])
        )
        if kind == "add" or not fields:
            fields.append(draw(_NEW_FIELDS))
            continue
        at = draw(st.integers(0, len(fields) - 1))
        number, wire, value = fields[at]
        if kind == "value" and wire == _VARINT:
            value = draw(st.sampled_from(_NUMBERS))
        elif kind == "value" and wire == _BYTES:
            value = draw(st.one_of(st.sampled_from(_STRINGS), st.binary(max_size=12)))
        elif kind == "drop":
            del fields[at]
            continue
        elif kind == "double":
            fields.insert(at, fields[at])
        elif kind == "number":
            number = draw(st.integers(1, 20))
        elif kind == "wrap" and wire == _BYTES:
            value = [(number, wire, value)]
        fields[at] = number, wire, value
    return _write(root)
