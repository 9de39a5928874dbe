"""Oracle: the rules of tensorflow_serving/util/json_tensor.cc, by hand."""

import contextlib
import json
import tracemalloc

import pytest

from serving.endpoint.models.servable import Signature, TensorSpec
from serving.endpoint.rest import json_tensor
from serving.endpoint.rest.request import decode_predict_request, decoding_bytes
from serving.web.status import StatusCode, StatusError


def signature(**dtypes):
    inputs = {name: TensorSpec(dtype, None) for name, dtype in dtypes.items()}
    return Signature("tensorflow/serving/predict", inputs, {})


SIGNATURES = {
    "serving_default": signature(x="int32"),
    "two": signature(a="int32", b="string"),
    "image": signature(image_bytes="string"),
    "half": signature(x="float16"),
    "none": signature(),
}


def decode(document, signature_name=None):
    if signature_name is not None:
        document = {"signature_name": signature_name, **document}
    return decode_predict_request(json.dumps(document).encode(), SIGNATURES)


def message_of(document, signature_name=None, code=StatusCode.INVALID_ARGUMENT):
    with pytest.raises(StatusError) as caught:
        decode(document, signature_name)
    assert caught.value.code == code
    return caught.value.message


class TestEnvelope:
    def test_signature_is_serving_default_unless_named(self):
        assert decode({"instances": [1]}).signature_name == "serving_default"
        assert decode({"instances": [1]}, "").signature_name == "serving_default"
        assert decode({"instances": ["a"]}, "image").signature_name == "image"

    def test_unknown_keys_are_ignored(self):
        assert decode({"instances": [1], "more": 2}).inputs["x"].tolist() == [1]

    @pytest.mark.parametrize("document", [[], "a", 1, None])
    def test_what_is_no_object_is_refused(self, document):
        assert message_of(document) == (
            f"JSON Value: {json.dumps(document)} Is not object"
        )


class TestRows:
    def test_plain_rows_are_stacked(self):
        request = decode({"instances": [[1, 2], [3, 4], [5, 6]]})
        assert request.row_format
        assert request.inputs["x"].tolist() == [[1, 2], [3, 4], [5, 6]]

    def test_scalar_rows_make_a_vector(self):
        assert decode({"instances": [1, 2]}).inputs["x"].shape == (2,)

    def test_one_input_may_be_named(self):
        assert decode({"instances": [{"x": 1}, {"x": 2}]}).inputs["x"].tolist() == [
            1,
            2,
        ]

    def test_base64_rows_need_no_name(self):
        request = decode({"instances": [{"b64": "aGk="}, {"b64": "eW8="}]}, "image")
        assert request.inputs["image_bytes"].tolist() == [b"hi", b"yo"]

    def test_named_base64_and_lists_of_it_are_decoded(self):
        rows = [{"image_bytes": [{"b64": "aGk="}]}, {"image_bytes": [{"b64": "eW8="}]}]
        request = decode({"instances": rows}, "image")
        assert request.inputs["image_bytes"].tolist() == [[b"hi"], [b"yo"]]

    def test_several_inputs_are_stacked_by_name(self):
        rows = [{"a": 1, "b": "x"}, {"b": {"b64": "eQ=="}, "a": 2}]
        request = decode({"instances": rows}, "two")
        assert request.inputs["a"].tolist() == [1, 2]
        assert request.inputs["b"].tolist() == [b"x", b"y"]

    def test_base64_rows_go_to_the_first_of_several_inputs(self):
        assert "of 'instances' list" in message_of(
            {"instances": [{"b64": "aGk="}]}, "two"
        )

    def test_first_of_many_bad_rows_is_named_after_few_conversions(self, monkeypatch):
        calls = []
        convert = json_tensor._convert
        monkeypatch.setattr(
            json_tensor, "_convert", lambda *args: calls.append(1) or convert(*args)
        )
        rows = [[1]] * 30_000
        rows[29_000] = [1, 2]
        rows[29_500] = ["x"]
        assert message_of({"instances": rows}) == (
            "Failed to process element: 29000 of 'instances' list. Error: "
            "INVALID_ARGUMENT: Expecting tensor size: 1 but got: 2"
        )
        assert len(calls) < 30

    def test_rows_of_as_many_dimensions_as_a_tensor_may_have_are_refused(self):
        row = 1
        for _ in range(32):
            row = [row]
        assert message_of({"instances": [row, row]}).endswith(
            "Lists are nested deeper than 32 levels."
        )


class TestColumns:
    def test_one_input_needs_no_name(self):
        request = decode({"inputs": [[1, 2], [3, 4]]})
        assert not request.row_format
        assert request.inputs["x"].tolist() == [[1, 2], [3, 4]]

    def test_base64_alone_is_a_scalar(self):
        request = decode({"inputs": {"b64": "aGk="}}, "image")
        assert request.inputs["image_bytes"].shape == ()
        assert request.inputs["image_bytes"].item() == b"hi"

    def test_several_inputs_are_read_by_name_and_others_ignored(self):
        columns = {"a": [[1]], "b": ["x"], "c": None}
        request = decode({"inputs": columns}, "two")
        assert request.inputs["a"].tolist() == [[1]]
        assert request.inputs["b"].tolist() == [b"x"]
        assert len(request.inputs) == 2

    def test_type_without_json_form_is_unimplemented(self):
        assert message_of({"inputs": [1]}, "half", StatusCode.UNIMPLEMENTED) == (
            "Conversion of JSON Value: 1 to type: half"
        )


FAILED = "Failed to process element"
BAD_ARGUMENT = "of 'instances' list. Error: INVALID_ARGUMENT:"
REFUSALS = {
    "signature name of another type": (
        {"signature_name": 100},
        'JSON Value: {\n    "signature_name": 100\n} not formatted correctly. '
        "'signature_name' key must be a string value.",
    ),
    "unknown signature": (
        {"signature_name": "nope", "instances": [1]},
        'Serving signature name: "nope" not found in signature def',
    ),
    "signature without inputs": (
        {"signature_name": "none", "instances": [1]},
        "Failed to get input map for signature: none",
    ),
    "nothing": ({}, "Missing 'inputs' or 'instances' key"),
    "another key": ({"instance": [1]}, "Missing 'inputs' or 'instances' key"),
    "key in capitals": ({"Instances": [1]}, "Missing 'inputs' or 'instances' key"),
    "instances and inputs": (
        {"instances": [1], "inputs": [1]},
        ...,
        " Not formatted correctly expecting only one of 'inputs' or 'instances' "
        "keys to exist ",
    ),
    **{
        f"instances of {value}": (
            {"instances": value},
            ...,
            " Excepting 'instances' to be an list/array",
        )
        for value in (1, "a", {"x": 1}, None)
    },
    "no instances": (
        {"instances": []},
        "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array",
    ),
    "plain rows for several inputs": (
        {"signature_name": "two", "instances": [1]},
        "instances is a plain list, but expecting list of objects as multiple input "
        "tensors required as per tensorinfo_map",
    ),
    "list among objects": (
        {"instances": [{"x": 1}, 2]},
        "Expecting object but got list at item 1 of input list",
    ),
    "object among lists": (
        {"instances": [1, {"x": 2}]},
        "Expecting value/list but got object at item 1 of input list",
    ),
    "unknown input": (
        {"instances": [{"x": 1}, {"y": 1}]},
        f"{FAILED}: 1 key: y {BAD_ARGUMENT} JSON object: does not have named input: y",
    ),
    "missing input": (
        {"signature_name": "two", "instances": [{"a": 1}]},
        f"{FAILED}: 0 of 'instances' list. JSON object: "
        '{\n    "a": 1\n} keys must be equal to: a,b',
    ),
    "row of another size": (
        {"instances": [[1, 2], [3, 4, 5]]},
        f"{FAILED}: 1 {BAD_ARGUMENT} Expecting tensor size: 2 but got: 3",
    ),
    "row of another shape": (
        {"instances": [[1, 2], [[3, 4]]]},
        f"{FAILED}: 1 {BAD_ARGUMENT} Expecting shape [2] but got: [1,2]",
    ),
    "fraction for a whole number": (
        {
            "signature_name": "two",
            "instances": [{"a": 1, "b": "x"}, {"a": 1.5, "b": "x"}],
        },
        f"{FAILED}: 1 key: a {BAD_ARGUMENT} JSON Value: 1.5 Type: Number is not of "
        "expected type: int32",
    ),
    "bad base64": (
        {"signature_name": "image", "instances": [{"b64": "aGk="}, {"b64": "a"}]},
        f"{FAILED}: 1 {BAD_ARGUMENT} Unable to base64 decode",
    ),
    "type without a JSON form": (
        {"signature_name": "half", "instances": [1]},
        f"{FAILED}: 0 of 'instances' list. Error: UNIMPLEMENTED: Conversion of JSON "
        "Value: 1 to type: half",
    ),
    "missing column": (
        {"signature_name": "two", "inputs": {"a": [1]}},
        "Missing named input: b in 'inputs' object.",
    ),
    "plain column for several inputs": (
        {"signature_name": "two", "inputs": [1]},
        "inputs is a plain value/list, but expecting an object as multiple input "
        "tensors required as per tensorinfo_map",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_request_that_does_not_fit_is_refused_with_the_reason(case):
    document, *text = REFUSALS[case]
    message = message_of(document)
    # TF Serving prints the document before some reasons.
    assert message.endswith(text[-1]) if text[0] is ... else message == text[0]


class TestMemory:
    @pytest.mark.parametrize(
        ("values", "signature_name"),
        [
            ("[]", "serving_default"),
            ("{}", "image"),
            ("123456", "serving_default"),
            ("0.123456789", "half"),
            ('"ab"', "image"),
            ('{"b64":"AAAA"}', "image"),
            ('{"a":1,"b":"x"}', "two"),
            ('"' + "a" * 1000 + chr(0x1F600) + '"', "image"),
            (json.dumps(chr(0xE9) * 100), "image"),
            ("[" * 20 + "1" + "]" * 20, "serving_default"),
            ('{"' + "k" * 30 + '":{}}', "image"),
        ],
    )
    def test_decoding_takes_no_more_than_is_counted(self, values, signature_name):
        count = 300_000 // len(values)
        text = ",".join([values] * count)
        body = f'{{"signature_name":"{signature_name}","instances":[{text}]}}'.encode()
        counted = decoding_bytes(body)
        assert counted >= 2 * len(body)
        tracemalloc.start()
        try:
            with contextlib.suppress(StatusError):
                decode_predict_request(body, SIGNATURES)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= counted + 100_000

    def test_names_of_one_object_are_counted(self):
        names = ",".join(f'"{number}":1' for number in range(30_000))
        body = f'{{"instances":[{{{names}}}]}}'.encode()
        tracemalloc.start()
        try:
            with pytest.raises(StatusError):
                decode_predict_request(body, SIGNATURES)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= decoding_bytes(body) + 100_000
