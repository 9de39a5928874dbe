"""Oracle: the rules of tensorflow_serving/util/json_tensor.cc, by hand."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.endpoint.rest import json_tensor
from serving.endpoint.rest.json_tensor import parse_json, quote, tensor
from serving.web.status import StatusCode, StatusError


def message_of(call, *arguments):
    with pytest.raises(StatusError) as caught:
        call(*arguments)
    assert caught.value.code == StatusCode.INVALID_ARGUMENT
    return caught.value.message


class TestParsing:
    def test_bytes_behind_the_first_value_are_ignored(self):
        assert parse_json(b'{"a": 1} and more') == {"a": 1}

    def test_space_and_byte_order_mark_before_the_value_are_skipped(self):
        assert parse_json(b'\xef\xbb\xbf \r\n\t{"a": 1}') == {"a": 1}

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"", "The document is empty"),
            (b"instances = [1]", "Invalid value. at offset: 0"),
            (b'{"a": [1, 2', "Missing a comma or closing bracket. at offset: 11"),
            (b'{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
            (b"{a: 1}", "Missing a name for object member. at offset: 1"),
            (b'{"a": "b', "Missing a closing quotation mark in string. at offset: 6"),
            (b'{"a": "\\x"}', "Invalid escape character in string. at offset: 7"),
            (b'{"a": "\n"}', "Invalid encoding in string. at offset: 7"),
            (b'{"a": "\xff"}', "Invalid encoding in string. at offset: 7"),
            ('{"ä": x}'.encode(), "Invalid value. at offset: 7"),
        ],
    )
    def test_malformed_json_is_refused_with_reason_and_byte_offset(self, body, reason):
        assert message_of(parse_json, body) == f"JSON Parse error: {reason}"

    @pytest.mark.parametrize("opening", [b"[", b'{"a":'])
    def test_deep_nesting_is_refused(self, opening):
        assert message_of(parse_json, opening * 100_000) == (
            "JSON Parse error: The document is nested too deeply."
        )

    def test_integer_of_a_million_digits_is_refused(self):
        assert message_of(parse_json, b"9" * 10**6) == (
            "JSON Parse error: Number too big to be stored in double."
        )


class TestQuoting:
    def test_quote_is_cut_to_two_hundred_characters(self):
        assert quote("x" * 1000) == '"' + "x" * 199 + "..."

    def test_quote_of_deep_nesting_ends(self):
        assert quote(parse_json(b"[" * 900 + b"]" * 900)).endswith("...")


class TestNumbers:
    def test_integers_are_accepted_for_floats(self):
        array = tensor(parse_json(b"[1, 2.5, -3]"), "float32")
        assert array.dtype == np.float32
        assert array.tolist() == [1.0, 2.5, -3.0]

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_bare_nan_and_infinities_are_numbers(self, dtype):
        array = tensor(parse_json(b"[NaN, Infinity, -Infinity]"), dtype)
        np.testing.assert_array_equal(array, [np.nan, np.inf, -np.inf])

    def test_decimal_is_refused_for_integers(self):
        assert message_of(tensor, [1, 2.0], "int32") == (
            "JSON Value: 2.0 Type: Number is not of expected type: int32"
        )

    @pytest.mark.parametrize("value", [True, None, "1", {"a": 1}])
    @pytest.mark.parametrize(
        ("dtype", "name"), [("float32", "float"), ("int8", "int8")]
    )
    def test_what_is_no_number_is_refused_for_numbers(self, value, dtype, name):
        assert message_of(tensor, [value], dtype).endswith(
            f"is not of expected type: {name}"
        )

    @pytest.mark.parametrize(
        ("value", "kind"),
        [(None, "Null"), (True, "True"), (False, "False"), ("a", "String")],
    )
    def test_error_names_the_type_that_was_sent(self, value, kind):
        assert f" Type: {kind} " in message_of(tensor, [value], "float64")

    def test_boolean_input_takes_true_and_false_only(self):
        assert tensor([True, False], "bool").tolist() == [True, False]
        assert message_of(tensor, [True, 1], "bool") == (
            "JSON Value: 1 Type: Number is not of expected type: bool"
        )

    @pytest.mark.parametrize(
        ("dtype", "smallest", "largest"),
        [
            ("int8", -128, 127),
            ("uint8", 0, 255),
            ("int16", -(2**15), 2**15 - 1),
            ("int32", -(2**31), 2**31 - 1),
            ("uint32", 0, 2**32 - 1),
            ("int64", -(2**63), 2**63 - 1),
            ("uint64", 0, 2**64 - 1),
        ],
    )
    def test_integers_are_taken_to_their_limits_and_no_further(
        self, dtype, smallest, largest
    ):
        array = tensor([smallest, largest], dtype)
        assert array.dtype == dtype
        assert array.tolist() == [smallest, largest]
        for beyond in (smallest - 1, largest + 1):
            assert message_of(tensor, [0, beyond], dtype) == (
                f"JSON Value: {beyond} Type: Number is not of expected type: {dtype}"
            )

    @pytest.mark.parametrize(
        ("dtype", "name", "exact"),
        [("float32", "float", 2**24 - 1), ("float64", "double", 2**53 - 1)],
    )
    def test_integers_that_a_float_cannot_hold_are_refused(self, dtype, name, exact):
        assert tensor([exact, -exact], dtype).tolist() == [exact, -exact]
        for value in (exact + 2, -exact - 2):
            assert message_of(tensor, [value], dtype) == (
                f"Cannot convert JSON value: {value} to {name} without loss of "
                "precision."
            )

    def test_decimal_beyond_float32_is_refused(self):
        assert message_of(tensor, [1e39], "float32") == (
            "Cannot convert JSON value: 1e+39 to float without loss of precision."
        )

    @pytest.mark.parametrize(
        "body", [b"[1e999]", b"[Infinity, -1e999]", b"[1" + b"0" * 400 + b"]"]
    )
    def test_number_beyond_double_is_refused_and_not_made_infinite(self, body):
        assert message_of(tensor, parse_json(body), "float64") == (
            "JSON Parse error: Number too big to be stored in double."
        )

    def test_integer_beyond_64_bits_counts_as_a_decimal(self):
        assert tensor([10**20], "float32").tolist() == [float(np.float32(1e20))]

    @pytest.mark.parametrize(
        ("dtype", "name"),
        [("float16", "half"), ("bfloat16", "bfloat16"), ("complex64", "complex64")],
    )
    def test_types_without_json_form_are_unimplemented(self, dtype, name):
        with pytest.raises(StatusError) as caught:
            tensor([1], dtype)
        assert caught.value.code == StatusCode.UNIMPLEMENTED
        assert caught.value.message == f"Conversion of JSON Value: 1 to type: {name}"


class TestStrings:
    def test_plain_strings_become_utf8(self):
        assert tensor(["é", ""], "string").tolist() == ["é".encode(), b""]

    def test_base64_becomes_bytes(self):
        raw = bytes(range(256))
        sent = [{"b64": base64.b64encode(raw).decode()}, {"b64": ""}]
        assert tensor(sent, "string").tolist() == [raw, b""]

    @pytest.mark.parametrize("digits", ["aGk=", "aGk", " aG\nk= "])
    def test_padding_and_space_may_be_missing_or_there(self, digits):
        assert tensor({"b64": digits}, "string").item() == b"hi"

    @pytest.mark.parametrize("digits", ["aGk==", "a", "aG!k", "=", "aGkä", "aG=k"])
    def test_bad_base64_is_refused(self, digits):
        assert message_of(tensor, [{"b64": digits}], "string") == (
            "Unable to base64 decode"
        )

    @pytest.mark.parametrize("value", [{}, {"b64": 1}, {"b64": "aGk=", "x": 1}])
    def test_other_objects_are_refused(self, value):
        assert message_of(tensor, [value], "string").endswith(
            " not formatted correctly for base64 data"
        )

    def test_number_is_refused_for_a_string(self):
        assert message_of(tensor, [5], "string") == (
            "JSON Value: 5 Type: Number is not of expected type: string"
        )

    def test_half_of_a_surrogate_pair_is_refused(self):
        assert message_of(tensor, parse_json(b'["\\ud800"]'), "string") == (
            "JSON Parse error: The surrogate pair in string is invalid."
        )


class TestShapes:
    def test_value_without_a_list_has_no_dimension(self):
        assert tensor(3, "int32").shape == ()

    def test_lists_nest_to_dimensions(self):
        array = tensor([[[1, 2, 3]], [[4, 5, 6]]], "int32")
        assert array.tolist() == [[[1, 2, 3]], [[4, 5, 6]]]

    def test_strings_nest_to_dimensions(self):
        assert tensor([["a"], [{"b64": "Yg=="}]], "string").tolist() == [[b"a"], [b"b"]]

    def test_empty_lists_have_a_shape(self):
        assert tensor([[], []], "float32").shape == (2, 0)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (
                [[1, 2], [3]],
                "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
            ),
            ([1, [2]], "Encountered list at unexpected level: 1 expected < 1"),
            (
                [[1], 2],
                "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected "
                "at level: 2",
            ),
        ],
    )
    def test_ragged_lists_are_refused(self, value, message):
        assert message_of(tensor, value, "int32") == message

    def test_tensor_may_have_32_dimensions(self):
        value = parse_json(b"[" * 32 + b"1" + b"]" * 32)
        assert tensor(value, "int32").shape == (1,) * 32

    def test_nesting_that_no_tensor_has_is_refused(self):
        value = parse_json(b"[" * 900 + b"1" + b"]" * 900)
        assert message_of(tensor, value, "int32") == (
            "Lists are nested deeper than 32 levels."
        )


class TestRefusedQuickly:
    """A refusal must not take much longer than an answer."""

    @pytest.fixture
    def converted(self, monkeypatch):
        """Count the values that are given to the conversion."""
        counts = []
        convert = json_tensor._convert

        def counting(value, shape, dtype):
            counts.append(len(value) if type(value) is list else 1)
            return convert(value, shape, dtype)

        monkeypatch.setattr(json_tensor, "_convert", counting)
        return counts

    @pytest.mark.parametrize("bad", [0, 1, 4999, 9998, 9999])
    def test_bad_value_is_found_in_few_steps(self, converted, bad):
        values = [1.0] * 10_000
        values[bad] = "x"
        assert message_of(tensor, values, "float32") == (
            'JSON Value: "x" Type: String is not of expected type: float'
        )
        assert len(converted) < 20
        assert sum(converted) < 25_000

    def test_first_of_several_bad_values_is_named(self):
        values = [[1, 2]] * 1000
        for place in (400, 401, 700, 999):
            values[place] = [1, f"bad {place}"]
        assert '"bad 400"' in message_of(tensor, values, "int32")

    def test_rare_values_are_converted_at_once(self, converted):
        values = parse_json(
            b"[" + b"Infinity, 100000000000000000000, NaN, " * 999 + b"1]"
        )
        assert tensor(values, "float32").shape == (2998,)
        assert len(converted) == 1

    @given(
        st.recursive(
            st.sampled_from([0, 1.5, -3, "a", None, True, 2**24, 10**20, 1e39]),
            lambda inner: st.lists(inner, max_size=4),
            max_leaves=12,
        ),
        st.sampled_from(["float32", "int8", "string", "bool"]),
    )
    def test_error_is_that_of_the_first_value_that_does_not_fit(self, value, dtype):
        sizes = []
        inner = value
        while type(inner) is list:
            sizes.append(len(inner))
            inner = inner[0] if inner else None

        def reason(value, level):
            """Walk through the values in their order."""
            if type(value) is list:
                if level == len(sizes):
                    return f"Encountered list at unexpected level: {level}"
                if len(value) != sizes[level]:
                    return f"at unexpected size: {len(value)} at level: {level}"
                reasons = (reason(item, level + 1) for item in value)
                return next(filter(None, reasons), None)
            if level != len(sizes):
                return f"found at incorrect level: {level + 1} in"
            try:
                tensor(value, dtype)
            except StatusError as error:
                return error.message
            return None

        expected = reason(value, 0)
        if expected is None:
            assert tensor(value, dtype).shape == tuple(sizes)
        else:
            assert expected in message_of(tensor, value, dtype)
