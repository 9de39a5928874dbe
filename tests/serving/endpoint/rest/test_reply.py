"""Oracle: bodies written out by hand, as RapidJSON's PrettyWriter prints them."""

import json

import numpy as np
import pytest

from serving.endpoint.rest.reply import encode_error, encode_predict_reply
from serving.web.status import StatusError


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def numbers(values, dtype):
    """Encode a vector; return the texts of its numbers."""
    body = encode_predict_reply({"y": np.array(values, dtype)}, row_format=True)
    start, end = b'{\n    "predictions": [', b"\n    ]\n}"
    assert body.startswith(start)
    assert body.endswith(end)
    return body[len(start) : -len(end)].decode().split(", ")


def message_of(outputs, *, row_format=True):
    with pytest.raises(StatusError) as caught:
        encode_predict_reply(outputs, row_format=row_format)
    return caught.value.message


class TestNumbers:
    # The first line is the test of TF Serving itself.
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (9000000, "9e+06"),
            (999999, "999999.0"),
            (0.5, "0.5"),
            (0.0003, "0.0003"),
            (0.00003, "3e-05"),
            (555557.5, "555557.5"),
            (0, "0.0"),
            (-0.0, "-0.0"),
            (1, "1.0"),
            (-2, "-2.0"),
            (0.1, "0.1"),
            (1 / 3, "0.333333343"),
            (np.pi, "3.14159274"),
            (1e6, "1e+06"),
            (1234567, "1234567.0"),
            (2**24, "16777216.0"),
            (123456789, "123456792.0"),
            (1e9, "1e+09"),
            (2**31, "2.14748365e+09"),
            (1e-45, "1.4013e-45"),
            (np.finfo(np.float32).max, "3.40282347e+38"),
        ],
    )
    def test_float32_has_six_digits_or_nine(self, value, text):
        assert numbers([value], np.float32) == [text]

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0.1, "0.1"),
            (1 / 3, "0.33333333333333331"),
            (2**53, "9007199254740992.0"),
            (1e17, "1e+17"),
            (2.0**60, "1.152921504606847e+18"),
            (5e-324, "4.94066e-324"),
        ],
    )
    def test_float64_has_six_digits_or_seventeen(self, value, text):
        assert numbers([value], np.float64) == [text]

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_nan_and_infinities_are_bare(self, dtype):
        assert numbers([np.nan, np.inf, 3, -np.inf], dtype) == [
            "NaN",
            "Infinity",
            "3.0",
            "-Infinity",
        ]

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_decimals_read_back_to_the_same_number(self, dtype):
        rng = np.random.default_rng(1)
        bits = rng.integers(0, 2**63, 20_000, dtype=np.uint64)
        values = bits.view(dtype)
        values = np.concatenate(
            [
                values[np.isfinite(values)],
                np.round(rng.normal(size=5000), 3).astype(dtype),
                (10.0 ** np.arange(-30, 30)).astype(dtype),
            ]
        )
        texts = numbers(values, dtype)
        np.testing.assert_array_equal(np.array(texts, np.float64).astype(dtype), values)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_decimals_equal_printf_one_by_one(self, dtype):
        digits = {np.float32: 9, np.float64: 17}[dtype]
        rng = np.random.default_rng(2)
        values = np.concatenate(
            [
                rng.normal(size=5000),
                np.round(rng.normal(size=5000) * 10.0 ** rng.integers(-9, 9, 5000), 4),
                rng.integers(0, 10**6, 5000) * 10.0 ** rng.integers(-20, 20, 5000),
                rng.integers(-(2**24), 2**24, 5000),
            ]
        ).astype(dtype)

        def printed(value):
            text = f"{value:.6g}"
            if dtype(float(text)) != dtype(value):
                text = f"{value:.{digits}g}"
            return text if "." in text or "e" in text else text + ".0"

        assert numbers(values, dtype) == [printed(value) for value in values.tolist()]

    @pytest.mark.parametrize(
        "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"]
    )
    def test_integers_are_printed_in_full(self, dtype):
        limits = np.iinfo(dtype)
        assert numbers([limits.min, limits.max], dtype) == [
            str(limits.min),
            str(limits.max),
        ]

    def test_booleans_are_true_and_false(self):
        assert numbers([True, False], bool) == ["true", "false"]

    @pytest.mark.parametrize(
        ("dtype", "name"),
        [("float16", "half"), ("complex64", "complex64"), ("uint16", "uint16")],
    )
    def test_types_without_json_form_are_refused(self, dtype, name):
        assert message_of({"y": np.zeros(2, dtype)}) == (
            f"Failed to write JSON value for tensor type: {name}"
        )


class TestStrings:
    def test_strings_are_escaped_as_json(self):
        outputs = {"text": strings('a"\\\n\x01é'.encode())}
        body = encode_predict_reply(outputs, row_format=True)
        assert body == (
            '{\n    "predictions": ["a\\"\\\\\\n\\u0001é"\n    ]\n}'.encode()
        )

    def test_strings_that_are_no_utf8_keep_their_bytes(self):
        body = encode_predict_reply({"text": strings(b"\xff")}, row_format=True)
        assert body == b'{\n    "predictions": ["\xff"\n    ]\n}'

    def test_output_named_bytes_goes_out_as_base64(self):
        outputs = {"text_bytes": strings(b"\xff", b"")}
        assert encode_predict_reply(outputs, row_format=True) == (
            b"{\n"
            b'    "predictions": [{\n'
            b'            "b64": "/w=="\n'
            b"        }, {\n"
            b'            "b64": ""\n'
            b"        }\n"
            b"    ]\n"
            b"}"
        )


class TestRows:
    def test_each_row_of_one_output_is_on_one_line_without_name(self):
        outputs = {"y": np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.int32)}
        assert encode_predict_reply(outputs, row_format=True) == (
            b'{\n    "predictions": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]\n    ]\n}'
        )

    def test_several_outputs_make_an_object_a_row(self):
        outputs = {
            "score": np.array([0.5, 2], np.float32),
            "codes": np.array([[1, 2], [3, 4]], np.int64),
        }
        assert encode_predict_reply(outputs, row_format=True) == (
            b"{\n"
            b'    "predictions": [\n'
            b"        {\n"
            b'            "codes": [1, 2],\n'
            b'            "score": 0.5\n'
            b"        },\n"
            b"        {\n"
            b'            "codes": [3, 4],\n'
            b'            "score": 2.0\n'
            b"        }\n"
            b"    ]\n"
            b"}"
        )

    def test_no_rows_make_an_empty_list(self):
        outputs = {"y": np.zeros((0, 4), np.float32)}
        assert encode_predict_reply(outputs, row_format=True) == (
            b'{\n    "predictions": []\n}'
        )

    def test_rows_without_values_are_empty_lists(self):
        outputs = {"y": np.zeros((2, 0), np.float32)}
        assert json.loads(encode_predict_reply(outputs, row_format=True)) == {
            "predictions": [[], []]
        }

    def test_output_without_rows_is_refused(self):
        assert message_of({"y": np.float32(1).reshape(())}) == (
            "Tensor name: y has no shape information "
        )

    def test_outputs_of_different_numbers_of_rows_are_refused(self):
        outputs = {"a": np.zeros(2, np.int32), "b": np.zeros(1, np.int32)}
        assert message_of(outputs) == (
            "Tensor name: b has inconsistent batch size: 1 expecting: 2"
        )

    def test_no_outputs_are_refused(self):
        assert message_of({}) == "Cannot convert empty tensor map to JSON"


class TestColumns:
    def test_one_output_has_no_name_and_a_line_a_value(self):
        outputs = {"y": np.array([[1, 2], [3, 4]], np.float32)}
        assert encode_predict_reply(outputs, row_format=False) == (
            b"{\n"
            b'    "outputs": [\n'
            b"        [\n"
            b"            1.0,\n"
            b"            2.0\n"
            b"        ],\n"
            b"        [\n"
            b"            3.0,\n"
            b"            4.0\n"
            b"        ]\n"
            b"    ]\n"
            b"}"
        )

    def test_several_outputs_are_named(self):
        outputs = {
            "n": np.array([7], np.int32),
            "raw_bytes": strings(b"hi"),
            "scalar": np.array(True),
        }
        assert encode_predict_reply(outputs, row_format=False) == (
            b"{\n"
            b'    "outputs": {\n'
            b'        "n": [\n'
            b"            7\n"
            b"        ],\n"
            b'        "raw_bytes": [\n'
            b"            {\n"
            b'                "b64": "aGk="\n'
            b"            }\n"
            b"        ],\n"
            b'        "scalar": true\n'
            b"    }\n"
            b"}"
        )

    @pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2), (1, 2, 3)])
    def test_shape_survives(self, shape):
        array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        body = encode_predict_reply({"y": array}, row_format=False)
        assert json.loads(body) == {"outputs": array.tolist()}


class TestErrors:
    def test_error_is_an_object_of_one_text(self):
        assert encode_error('no "x"\n') == b'{\n    "error": "no \\"x\\"\\n"\n}'

    def test_half_of_a_surrogate_pair_is_escaped(self):
        assert encode_error("\ud800") == b'{\n    "error": "\\ud800"\n}'
