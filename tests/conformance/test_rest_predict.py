"""Predict over REST. Oracle: TF Serving's documentation, and the source of 2.20."""

import gzip
import json
import re

import numpy as np
import pytest

from tests.conformance.messages import BAD, b64, error_of, predict, rows_of, says
from tests.support.served import not_found


@pytest.fixture(scope="module")
def expected(rest, target, images):
    """Embeddings of the images, by one plain request."""
    document = {"instances": [b64(image) for image in images]}
    return rows_of(predict(rest, target.path, document))


def close(rows, expected):
    np.testing.assert_allclose(rows, expected, atol=1e-5)


class TestFormats:
    def test_rows_of_images_become_rows_of_unit_length(self, target, expected):
        assert expected.shape == (3, target.dimension)
        close(np.linalg.norm(expected, axis=1), 1)

    def test_rows_may_name_their_only_input(self, rest, target, images, expected):
        rows = [{"image_bytes": b64(image)} for image in images]
        close(rows_of(predict(rest, target.path, {"instances": rows})), expected)

    def test_columns_come_under_the_name_of_the_input(
        self, rest, target, images, expected
    ):
        column = {"image_bytes": [b64(image) for image in images]}
        reply = predict(rest, target.path, {"inputs": column})
        close(rows_of(reply, "outputs"), expected)

    def test_column_of_the_only_input_needs_no_name(
        self, rest, target, images, expected
    ):
        column = [b64(image) for image in images]
        reply = predict(rest, target.path, {"inputs": column})
        close(rows_of(reply, "outputs"), expected)

    def test_other_keys_of_columns_are_ignored(self, rest, target, images, expected):
        column = {"image_bytes": [b64(image) for image in images], "other": [1]}
        reply = predict(rest, target.path, {"inputs": column, "comment": "ignored"})
        close(rows_of(reply, "outputs"), expected)

    @pytest.mark.parametrize("name", ["serving_default", ""])
    def test_default_signature_may_be_named(self, rest, target, images, expected, name):
        document = {"signature_name": name, "instances": [b64(images[0])]}
        close(rows_of(predict(rest, target.path, document)), expected[:1])

    def test_signature_that_is_named_takes_tensors(
        self, rest, target, pixels, expected
    ):
        document = {"signature_name": "tensors", "instances": pixels.tolist()}
        rows = rows_of(predict(rest, target.path, document))
        assert rows.shape == expected.shape
        if target.is_squashed:  # then an image of the model's size stays as it is
            close(rows, expected)

    def test_bytes_behind_the_document_are_ignored(
        self, rest, target, images, expected
    ):
        body = json.dumps({"instances": [b64(images[0])]}) + " and more"
        reply = rest.post(f"{target.path}:predict", content=body)
        close(rows_of(reply), expected[:1])

    @pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
    def test_content_type_does_not_matter(self, rest, target, images, expected, kind):
        body = json.dumps({"instances": [b64(images[0])]})
        headers = {"Content-Type": kind}
        reply = rest.post(f"{target.path}:predict", content=body, headers=headers)
        close(rows_of(reply), expected[:1])

    def test_numbers_are_floats_of_nine_digits_at_most(self, rest, target, images):
        text = predict(rest, target.path, {"instances": [b64(images[0])]}).text
        numbers = re.findall(r"[-+.\deE]+", text.partition("[")[2])
        assert len(numbers) == target.dimension
        for number in numbers:
            assert "." in number or "e" in number, number
            digits = re.sub(r"e.*|[-+.]", "", number).lstrip("0")
            assert len(digits) <= 9, number


class TestVersions:
    def test_latest_version_answers_unless_one_is_named(
        self, rest, target, images, expected
    ):
        path = f"{target.path}/versions/{target.version}"
        document = {"instances": [b64(images[0])]}
        close(rows_of(predict(rest, path, document)), expected[:1])

    def test_label_answers_as_its_version(self, rest, target, images, expected, label):
        document = {"instances": [b64(images[0])]}
        rows = rows_of(predict(rest, f"{target.path}/labels/{label}", document))
        version = target.labeled_version
        path = f"{target.path}/versions/{version}"
        close(rows, rows_of(predict(rest, path, document)))
        if version != target.version:
            assert np.abs(rows - expected[:1]).max() > 1e-3  # is not the latest

    def test_letter_case_of_the_path_does_not_matter(self, rest, target, images):
        path = f"/V1/Models/{target.model}/VERSIONS/{target.version}:PREDICT"
        assert rest.post(path, json={"instances": [b64(images[0])]}).is_success

    def test_unknown_model_is_not_found(self, rest, target):
        reply = predict(rest, "/v1/models/no-such-model", {"instances": [b64(b"")]})
        assert says(target, error_of(reply, 404), not_found("no-such-model"))

    def test_unknown_version_is_not_found(self, rest, target):
        path = f"{target.path}/versions/987654321"
        text = error_of(predict(rest, path, {"instances": [b64(b"")]}), 404)
        assert says(target, text, not_found(target.model, 987654321))

    def test_unknown_label_is_refused(self, rest, target):
        path = f"{target.path}/labels/no_such_label"
        text = error_of(predict(rest, path, {"instances": [b64(b"")]}), 400)
        wanted = "Unrecognized servable version label: no_such_label"
        assert says(target, text, wanted)

    def test_version_beyond_64_bits_is_refused(self, rest, target):
        digits = "9223372036854775808"
        path = f"{target.path}/versions/{digits}"
        text = error_of(predict(rest, path, {"instances": [b64(b"")]}), 400)
        assert says(target, text, f"Failed to convert version: {digits} to numeric.")


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ("", "JSON Parse error: The document is empty"),
            ("{", "JSON Parse error"),
            ("[1]", "Is not object"),
            ("{}", "Missing 'inputs' or 'instances' key"),
            ('{"images": [1]}', "Missing 'inputs' or 'instances' key"),
            ('{"instances": [1], "inputs": [1]}', "expecting only one of"),
            ('{"instances": []}', "No values in 'instances' array"),
            ('{"instances": 1}', "'instances' to be an list/array"),
            ('{"instances": [{"image": "x"}]}', "does not have named input: image"),
            ('{"instances": [{"b64": "!"}]}', "Unable to base64 decode"),
            (
                '{"inputs": {"image": ["x"]}}',
                "Missing named input: image_bytes in 'inputs' object.",
            ),
            (
                '{"signature_name": "none", "instances": ["x"]}',
                'Serving signature name: "none" not found in signature def',
            ),
            (
                '{"signature_name": 1, "instances": ["x"]}',
                "'signature_name' key must be a string value.",
            ),
        ],
    )
    def test_body_that_does_not_fit_is_refused_with_the_reason(
        self, rest, target, body, text
    ):
        reply = rest.post(f"{target.path}:predict", content=body)
        assert text in error_of(reply, 400)

    @pytest.mark.parametrize("bad", BAD)
    def test_bad_image_is_refused(self, rest, target, images, bad):
        instances = [b64(images[0]), b64(BAD[bad])]
        error_of(predict(rest, target.path, {"instances": instances}), 400)
        error_of(predict(rest, target.path, {"inputs": instances}), 400)

    def test_text_is_not_an_image(self, rest, target):
        error_of(predict(rest, target.path, {"instances": ["just text"]}), 400)

    def test_fraction_is_no_pixel(self, rest, target, pixels):
        image = pixels[0].tolist()
        image[0][0][0] = 0.5
        document = {"signature_name": "tensors", "instances": [image]}
        error_of(predict(rest, target.path, document), 400)

    def test_tensor_of_another_rank_is_refused(self, rest, target):
        document = {"signature_name": "tensors", "inputs": [[1, 2, 3]]}
        error_of(predict(rest, target.path, document), 400)

    def test_rows_of_unequal_shape_are_refused(self, rest, target, pixels):
        image = pixels[0].tolist()
        document = {"signature_name": "tensors", "instances": [image, image[1:]]}
        error_of(predict(rest, target.path, document), 400)

    @pytest.mark.parametrize(
        ("method", "kind"), [("classify", "classification"), ("regress", "regression")]
    )
    def test_classify_and_regress_need_other_signatures(
        self, rest, target, method, kind
    ):
        document = {"examples": [{"x": [1.0]}]}
        text = error_of(rest.post(f"{target.path}:{method}", json=document), 400)
        wanted = (
            f"Expected {kind} signature method_name to be tensorflow/serving/{method}. "
            "Was: tensorflow/serving/predict"
        )
        assert says(target, text, wanted)


class TestCompression:
    def test_compressed_request_is_answered_as_the_plain_one(
        self, rest, target, images, expected
    ):
        document = {"instances": [b64(image) for image in images]}
        reply = rest.post(
            f"{target.path}:predict",
            content=gzip.compress(json.dumps(document).encode()),
            headers={"Content-Encoding": "gzip"},
        )
        close(rows_of(reply), expected)

    def test_reply_is_not_compressed_unless_asked(self, rest, target, images):
        document = {"instances": [b64(images[0])]}
        headers = {"Accept-Encoding": "identity"}
        reply = predict(rest, target.path, document, headers=headers)
        assert "content-encoding" not in reply.headers
        rows_of(reply)

    def test_reply_that_is_asked_compressed_says_what_it_is(
        self, rest, target, images, expected
    ):
        """A server may send it as it is, as TF Serving does."""
        document = {"instances": [b64(images[0])]}
        headers = {"Accept-Encoding": "gzip"}
        reply = predict(rest, target.path, document, headers=headers)
        assert reply.headers.get("content-encoding", "gzip") == "gzip"
        close(rows_of(reply), expected[:1])

    def test_server_answers_after_a_request_that_is_no_gzip(self, rest, target, images):
        headers = {"Content-Encoding": "gzip"}
        reply = rest.post(f"{target.path}:predict", content=b"{}", headers=headers)
        assert reply.status_code >= 400
        rows_of(predict(rest, target.path, {"instances": [b64(images[0])]}))
