"""Oracle: the rules of tensorflow_serving/util/json_tensor.cc, by hand."""

import json

import pytest

from serving.endpoint.models.servable import Signature, TensorSpec
from serving.endpoint.rest import json_tensor
from serving.endpoint.rest.request import decode_predict_request
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

    def test_signature_name_that_is_no_string_is_refused(self):
        assert message_of({"signature_name": 100}) == (
            'JSON Value: {\n    "signature_name": 100\n} not formatted correctly. '
            "'signature_name' key must be a string value."
        )

    def test_unknown_signature_is_refused(self):
        assert message_of({"instances": [1]}, "nope") == (
            'Serving signature name: "nope" not found in signature def'
        )

    def test_signature_without_inputs_is_refused(self):
        assert message_of({"instances": [1]}, "none") == (
            "Failed to get input map for signature: none"
        )

    @pytest.mark.parametrize("document", [{}, {"instance": [1]}, {"Instances": [1]}])
    def test_missing_instances_and_inputs_are_refused(self, document):
        assert message_of(document) == "Missing 'inputs' or 'instances' key"

    def test_both_instances_and_inputs_are_refused(self):
        assert message_of({"instances": [1], "inputs": [1]}).endswith(
            " Not formatted correctly expecting only one of 'inputs' or 'instances' "
            "keys to exist "
        )

    @pytest.mark.parametrize("value", [1, "a", {"x": 1}, None])
    def test_instances_that_are_no_list_are_refused(self, value):
        assert message_of({"instances": value}).endswith(
            " Excepting 'instances' to be an list/array"
        )

    def test_empty_instances_are_refused(self):
        assert message_of({"instances": []}) == (
            "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array"
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

    def test_plain_rows_are_refused_for_several_inputs(self):
        assert message_of({"instances": [1]}, "two") == (
            "instances is a plain list, but expecting list of objects as multiple "
            "input tensors required as per tensorinfo_map"
        )

    def test_base64_rows_go_to_the_first_of_several_inputs(self):
        assert "of 'instances' list" in message_of(
            {"instances": [{"b64": "aGk="}]}, "two"
        )

    def test_list_among_objects_is_refused(self):
        assert message_of({"instances": [{"x": 1}, 2]}) == (
            "Expecting object but got list at item 1 of input list"
        )

    def test_object_among_lists_is_refused(self):
        assert message_of({"instances": [1, {"x": 2}]}) == (
            "Expecting value/list but got object at item 1 of input list"
        )

    def test_unknown_input_is_refused(self):
        assert message_of({"instances": [{"x": 1}, {"y": 1}]}) == (
            "Failed to process element: 1 key: y of 'instances' list. Error: "
            "INVALID_ARGUMENT: JSON object: does not have named input: y"
        )

    def test_missing_input_is_refused(self):
        assert message_of({"instances": [{"a": 1}]}, "two") == (
            "Failed to process element: 0 of 'instances' list. JSON object: "
            '{\n    "a": 1\n} keys must be equal to: a,b'
        )

    def test_row_of_another_size_is_refused(self):
        assert message_of({"instances": [[1, 2], [3, 4, 5]]}) == (
            "Failed to process element: 1 of 'instances' list. Error: "
            "INVALID_ARGUMENT: Expecting tensor size: 2 but got: 3"
        )

    def test_row_of_another_shape_is_refused(self):
        assert message_of({"instances": [[1, 2], [[3, 4]]]}) == (
            "Failed to process element: 1 of 'instances' list. Error: "
            "INVALID_ARGUMENT: Expecting shape [2] but got: [1,2]"
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

    def test_wrong_value_is_named_with_its_row_and_input(self):
        rows = [{"a": 1, "b": "x"}, {"a": 1.5, "b": "x"}]
        assert message_of({"instances": rows}, "two") == (
            "Failed to process element: 1 key: a of 'instances' list. Error: "
            "INVALID_ARGUMENT: JSON Value: 1.5 Type: Number is not of expected type: "
            "int32"
        )

    def test_bad_base64_is_named_with_its_row(self):
        rows = [{"b64": "aGk="}, {"b64": "a"}]
        assert message_of({"instances": rows}, "image") == (
            "Failed to process element: 1 of 'instances' list. Error: "
            "INVALID_ARGUMENT: Unable to base64 decode"
        )

    def test_type_without_json_form_is_an_invalid_argument(self):
        assert message_of({"instances": [1]}, "half") == (
            "Failed to process element: 0 of 'instances' list. Error: UNIMPLEMENTED: "
            "Conversion of JSON Value: 1 to type: half"
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

    def test_missing_input_is_refused(self):
        assert message_of({"inputs": {"a": [1]}}, "two") == (
            "Missing named input: b in 'inputs' object."
        )

    def test_plain_value_is_refused_for_several_inputs(self):
        assert message_of({"inputs": [1]}, "two") == (
            "inputs is a plain value/list, but expecting an object as multiple input "
            "tensors required as per tensorinfo_map"
        )

    def test_type_without_json_form_is_unimplemented(self):
        assert message_of({"inputs": [1]}, "half", StatusCode.UNIMPLEMENTED) == (
            "Conversion of JSON Value: 1 to type: half"
        )
