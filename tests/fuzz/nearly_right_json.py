"""Bodies of predict requests that are almost right, as Hypothesis strategies."""

import base64
import json

from hypothesis import strategies as st

from tests.fuzz.mutated_bytes import mutated
from tests.support.example_model import png

_IMAGE = {"b64": base64.b64encode(png(10, 20, 30)).decode()}
_BLACK = [[[0, 0, 0]] * 8] * 8

_DOCUMENTS = (
    {"instances": [{"image_bytes": _IMAGE}]},
    {"instances": [_IMAGE, _IMAGE]},
    {"inputs": {"image_bytes": [_IMAGE]}},
    {
        "signature_name": "mixed",
        "instances": [
            {"number": 1, "text": "a"},
            {"number": -2, "text": {"b64": "YQ=="}},
        ],
    },
    {"signature_name": "mixed", "inputs": {"number": [1, 2], "text": ["a", "b"]}},
    {"signature_name": "total", "inputs": [1.5, 2]},
    {"signature_name": "total", "instances": [1.5, 2e3]},
    {"signature_name": "tensors", "instances": [_BLACK]},
    {"signature_name": "unpack", "inputs": {"packed": [{"b64": "H4sIAAAA"}]}},
)
BODIES = tuple(json.dumps(document).encode() for document in _DOCUMENTS)
"""Bodies of the example model, all but the last are right."""


class _Raw(str):
    """Text that is written as it stands."""

    __slots__ = ()


_NO_NUMBERS = ("01", "1.", ".5", "+1", "0x10", "1e", "1e5e5", "--1", "1_0", "1,", "'1'")
_NUMBERS = (
    *("1e999", "-1e999", "1e-999", "NaN", "Infinity", "-Infinity", "-0", "-0.0"),
    *("9" * 400, "-" + "9" * 400, "0." + "9" * 400, "9" * 5000, "1e400", "1e38"),
    *(str(2**power) for power in (24, 31, 32, 53, 63, 64)),
    *(str(-(2**power) - 1) for power in (31, 63)),
)
_STRINGS = (
    *('"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\uD83D"', '"\\u12"', '"\\x41"'),
    *('"\n"', '"', '"\x00"', '""', '"a" "b"', '"\\', '"é"', "'a'"),
)
_BASE64 = (
    *("A", "AA=", "AAA", "AAAA=", "====", "AA==AA==", "A A=", "A\nA=", "-_-_"),
    *("é", "\x00", "AAAA\\n", "data:image/png;base64,AAAA", " ", "=AAA", "A===", ""),
)
_DEPTHS = (1, 2, 31, 32, 33, 64, 500, 1000, 20_000, 100_000)


def _nested(start: str, end: str, middle: str) -> st.SearchStrategy:
    return st.sampled_from(_DEPTHS).map(
        lambda depth: _Raw(start * depth + middle + end * depth)
    )


_WRONG = st.one_of(
    st.sampled_from([None, True, False, 0, 1.5, "", "a", [], {}, [[]], [{}], [None]]),
    st.sampled_from([*map(_Raw, _NUMBERS), *map(_Raw, _NO_NUMBERS)]),
    st.sampled_from([*map(_Raw, _STRINGS)]),
    st.sampled_from([{"b64": text} for text in _BASE64]),
    st.sampled_from(
        [
            {"b64": 1},
            {"b64": None},
            {"b64": ["YQ=="]},
            {"b64": {"b64": "YQ=="}},
            {"b64": "YQ==", "more": 1},
            {"B64": "YQ=="},
            _Raw('{"b64": "YQ==", "b64": "Yg=="}'),
        ]
    ),
    st.sampled_from([[1, [2]], [[1], 2], [[1], [2, 3]], [[], [1]], [1, "a"], [1, {}]]),
    _nested("[", "]", ""),
    _nested("[", "]", "1"),
    _nested("[", "", ""),
    _nested('{"a":', "}", "1"),
    _nested('{"instances":[', "]}", "1"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    ),
)
_KEYS = ("instances", "inputs", "signature_name", "b64", "number", "text", "", "é", "x")


def _places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 3)):
            yield from _places(value[index], (*path, index))


def _write(value) -> str:
    if isinstance(value, _Raw):
        return value
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_write(k)}: {_write(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_write, value))}]"
    return json.dumps(value)


def _changed(value, path, change):
    """Copy a value with something else at one place; `change` may return no value."""
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(value[path[0]], path[1:], change)
    return copy


@st.composite
def _wrong_documents(draw):
    value = draw(st.sampled_from(_DOCUMENTS))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(_places(value))))
        kind = draw(st.sampled_from(["replace", "replace", "wrap", "key", "again"]))
        wrong, key = draw(_WRONG), draw(st.sampled_from(_KEYS))

        def change(old, kind=kind, wrong=wrong, key=key):
            if kind == "wrap":
                return [old]
            if kind == "key" and isinstance(old, dict):
                return {**old, key: wrong}
            if kind == "again" and isinstance(old, dict) and old:
                first = next(iter(old))
                return {_Raw(_write(first)): old[first], **old, _Raw(f'"{key}"'): wrong}
            if kind == "again" and isinstance(old, list):
                return [*old, wrong]
            return wrong

        value = _changed(value, path, change)
        if isinstance(value, _Raw):
            break
    return _write(value).encode("utf-8", "surrogatepass")


def bodies() -> st.SearchStrategy:
    """Bodies with wrong values, or with damaged bytes."""
    return st.one_of(_wrong_documents(), _wrong_documents(), mutated(BODIES))
