import subprocess
import sys
import textwrap
import zlib

import numpy as np
import pytest
import tensorflow as tf

from serving.endpoint.models.servable import Servable, TensorSpec, readable_error
from serving.web.status import StatusCode, StatusError
from tests.support.example_model import png


@pytest.fixture(scope="module")
def servable(example_servables):
    return example_servables[1]


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def error_of(servable, inputs, signature_name="serving_default"):
    with pytest.raises(StatusError) as caught:
        servable.predict(inputs, signature_name)
    return caught.value


class TestLoading:
    def test_name_and_version_are_known(self, servable):
        assert (servable.name, servable.version) == ("example", 3)

    def test_signatures_have_names_dtypes_and_shapes(self, servable):
        assert set(servable.signatures) == {
            "serving_default",
            "tensors",
            "mixed",
            "unpack",
            "total",
        }
        default, tensors = (
            servable.signatures[name] for name in ("serving_default", "tensors")
        )
        assert default.method_name == "tensorflow/serving/predict"
        assert default.inputs == {"image_bytes": TensorSpec("string", (None,))}
        assert default.outputs == {"embedding": TensorSpec("float32", (None, 4))}
        assert tensors.inputs == {"images": TensorSpec("uint8", (None, 8, 8, 3))}

    @pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x01"])
    def test_broken_model_is_refused_with_its_folder(self, tmp_path, content):
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "saved_model.pb").write_bytes(content)
        with pytest.raises(ValueError, match="Version 1 of model 'm' cannot be") as e:
            Servable("m", 1, tmp_path / "1")
        assert str(tmp_path / "1") in str(e.value)

    def test_model_with_lost_weights_is_refused(self, tmp_path):
        module = tf.Module()
        module.weight = tf.Variable([1.0])
        module.call = tf.function(
            lambda x: {"y": x * module.weight},
            input_signature=[tf.TensorSpec([None], tf.float32, "x")],
        )
        tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.call)
        (tmp_path / "1" / "variables" / "variables.index").unlink()
        with pytest.raises(ValueError, match="cannot be loaded"):
            Servable("m", 1, tmp_path / "1")

    def test_model_without_signature_is_refused(self, tmp_path):
        tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
        with pytest.raises(ValueError, match="no signature to call"):
            Servable("m", 1, tmp_path / "1")

    @pytest.mark.parametrize("name", ["", "a/b", "a:b"])
    def test_name_that_cannot_stand_in_an_address_is_refused(self, name, example_model):
        with pytest.raises(ValueError, match="`name` must"):
            Servable(name, 3, example_model)


class TestPredicting:
    def test_image_becomes_embedding(self, servable):
        outputs = servable.predict(
            {"image_bytes": strings(png(255, 0, 51), png(0, 102, 255))}
        )
        assert list(outputs) == ["embedding"]
        assert outputs["embedding"].dtype == np.float32
        np.testing.assert_allclose(
            outputs["embedding"], [[1, 0, 0.2, 1], [0, 0.4, 1, 1]], rtol=1e-6
        )

    def test_images_of_several_formats_and_sizes_share_a_batch(self, servable):
        big = tf.io.encode_jpeg(np.full((30, 20, 3), 255, np.uint8)).numpy()
        outputs = servable.predict({"image_bytes": strings(png(0, 0, 0), big)})
        np.testing.assert_allclose(
            outputs["embedding"], [[0, 0, 0, 1], [1, 1, 1, 1]], atol=1e-6
        )

    def test_named_signature_is_called(self, servable):
        images = np.full((2, 8, 8, 3), 51, np.uint8)
        outputs = servable.predict({"images": images}, "tensors")
        np.testing.assert_allclose(outputs["embedding"], [[0.2, 0.2, 0.2, 1]] * 2)

    def test_empty_batch_has_an_empty_answer(self, servable):
        outputs = servable.predict({"image_bytes": strings()})
        assert outputs["embedding"].shape == (0, 4)

    def test_strings_come_back_as_bytes(self, servable):
        inputs = {"number": np.array([4]), "text": strings(b"a\x00b")}
        outputs = servable.predict(inputs, "mixed")
        assert outputs["text"].tolist() == [b"A\x00B"]
        assert outputs["third"].tolist() == [4 / 3]
        assert outputs["even"].tolist() == [True]

    def test_unknown_signature_is_refused(self, servable):
        error = error_of(servable, {}, "nope")
        assert error.code == StatusCode.FAILED_PRECONDITION
        assert error.message == 'Serving signature key "nope" not found.'

    def test_missing_input_is_refused(self, servable):
        error = error_of(servable, {"number": np.array([1])}, "mixed")
        assert error.code == StatusCode.INVALID_ARGUMENT
        assert error.message == (
            "input size does not match signature: 1!=2 len({number}) != "
            "len({number,text}). Sent extra: {}. Missing but required: {text}."
        )

    def test_shape_that_does_not_fit_is_refused(self, servable):
        error = error_of(
            servable, {"images": np.zeros((1, 8, 9, 3), np.uint8)}, "tensors"
        )
        assert error.code == StatusCode.INVALID_ARGUMENT
        assert error.message == (
            'Input "images" must have the shape [?,8,8,3] of the signature. '
            "Received: shape [1,8,9,3]."
        )

    @pytest.mark.parametrize("images", [[b"hello"], [b"x"] * 3])
    def test_text_instead_of_a_image_is_an_invalid_argument(self, servable, images):
        error = error_of(servable, {"image_bytes": strings(*images)})
        assert error.code == StatusCode.INVALID_ARGUMENT
        # TensorFlow 2.21 reads JPEG XL, too.
        assert error.message.replace("JPEG XL, ", "") == (
            "Unknown image file format. One of JPEG, PNG, GIF, BMP, WebP required."
        )

    def test_nothing_instead_of_a_image_is_an_invalid_argument(self, servable):
        error = error_of(servable, {"image_bytes": strings(b"")})
        assert error.code == StatusCode.INVALID_ARGUMENT
        assert error.message == "Input is empty."

    def test_image_that_is_cut_short_is_an_invalid_argument(self, servable):
        error = error_of(servable, {"image_bytes": strings(png(1, 2, 3)[:-20])})
        assert error.code == StatusCode.INVALID_ARGUMENT
        assert "\n" not in error.message
        assert "{{node" not in error.message

    def test_other_failures_keep_their_code(self, servable):
        broken = zlib.compress(b"not gzip")
        error = error_of(servable, {"packed": strings(broken)}, "unpack")
        assert error.code == StatusCode.DATA_LOSS
        assert error.message


@pytest.mark.parametrize(
    "message",
    [
        "Bad image.",
        "Bad image. [Op:__inference_signature_wrapper_309]",
        "Graph execution error:\n\n"
        "Detected at node a/b defined at (most recent call last):\n"
        '  File "export.py", line 3, in <module>\n'
        "\n"
        '  File "layer.py", line 9, in call\n'
        "\n"
        "Bad image.\n\t [[{{node a/b}}]] [Op:__inference_signature_wrapper_309]",
        "Graph execution error:\n\n"
        "Detected at node a defined at (most recent call last):\n"
        "<stack traces unavailable>\n"
        "Detected at node b defined at (most recent call last):\n"
        "<stack traces unavailable>\n"
        "2 root error(s) found.\n"
        "  (0) INVALID_ARGUMENT:  Bad image.\n\t [[{{node a}}]]\n\t [[loop/_8]]\n"
        "  (1) INVALID_ARGUMENT:  Another.\n\t [[{{node b}}]]\n"
        "0 successful operations.\n0 derived errors ignored. [Op:__inference_309]",
    ],
    ids=["plain", "function", "stack", "several"],
)
def test_graph_error_is_cut_down_to_its_sentence(message):
    assert readable_error(message) == "Bad image."


@pytest.mark.slow
def test_model_runs_where_keras_and_its_losses_cannot_be_imported(example_model):
    script = """
        import sys

        for name in ("keras", "tfdml.layers", "tfdml.losses", "tfdml.models"):
            sys.modules[name] = None
        import numpy as np

        from serving.endpoint.models.servable import Servable

        servable = Servable("example", 3, sys.argv[1])
        images = np.zeros((1, 8, 8, 3), np.uint8)
        outputs = servable.predict({"images": images}, "tensors")
        assert outputs["embedding"].tolist() == [[0, 0, 0, 1]]
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(example_model)],
        check=True,
        timeout=120,
    )
