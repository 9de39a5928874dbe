"""Real requests against a real SavedModel.

Oracle: TF Serving's REST documentation and its C++ source, bodies by hand.
"""

import base64
import json
import logging
import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest

from serving.endpoint import create_app, run
from serving.servable import Servable, Signature, TensorSpec
from serving.sockets import PortInUseError, open_socket
from tests.example_model import png, write_example_model
from tests.running_server import running

MAX_BODY_BYTES = 200_000


@pytest.fixture(scope="module")
def base_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "example"
    write_example_model(path / "3")
    return path


@pytest.fixture(scope="module")
def client(base_path):
    servables = [Servable("example", version, base_path / "3") for version in (2, 3)]
    app = create_app(servables, max_body_bytes=MAX_BODY_BYTES)
    with running(app) as url, httpx.Client(base_url=url) as connection:
        yield connection


def predict(client, document, path="example"):
    return client.post(f"/v1/models/{path}:predict", content=json.dumps(document))


def b64(data):
    return {"b64": base64.b64encode(data).decode()}


def error_of(response, status):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert list(document) == ["error"]
    return document["error"]


class TestStatus:
    STATUS = (
        "  {{\n"
        '   "version": "{}",\n'
        '   "state": "AVAILABLE",\n'
        '   "status": {{\n'
        '    "error_code": "OK",\n'
        '    "error_message": ""\n'
        "   }}\n"
        "  }}"
    )

    def test_status_lists_all_versions(self, client):
        response = client.get("/v1/models/example")
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.text == (
            '{\n "model_version_status": [\n'
            f"{self.STATUS.format(2)},\n{self.STATUS.format(3)}\n"
            " ]\n}\n"
        )

    def test_status_of_a_version_lists_that_one(self, client):
        assert client.get("/v1/models/example/versions/2").text == (
            '{\n "model_version_status": [\n' + self.STATUS.format(2) + "\n ]\n}\n"
        )

    def test_letter_case_of_the_path_does_not_matter(self, client):
        assert client.get("/V1/Models/example/VERSIONS/3").status_code == 200

    def test_letter_case_of_the_name_matters(self, client):
        assert error_of(client.get("/v1/models/Example"), 404) == (
            "Could not find any versions of model Example"
        )

    def test_name_may_be_percent_encoded(self, client):
        assert client.get("/v1/models/%65xample").status_code == 200

    def test_query_is_ignored(self, client):
        assert client.get("/v1/models/example?verbose=1").status_code == 200

    def test_missing_name_is_refused(self, client):
        assert error_of(client.get("/v1/models"), 400) == (
            "Missing model name in request."
        )

    def test_unknown_version_is_not_found(self, client):
        assert error_of(client.get("/v1/models/example/versions/9"), 404) == (
            "Could not find version 9 of model example"
        )

    @pytest.mark.parametrize("digits", ["9223372036854775808", "9" * 5000])
    def test_version_beyond_64_bits_is_refused(self, client, digits):
        response = client.get(f"/v1/models/example/versions/{digits}")
        assert error_of(response, 400) == (
            f"Failed to convert version: {digits} to numeric."
        )

    def test_labels_are_unknown(self, client):
        assert error_of(client.get("/v1/models/example/labels/stable"), 400) == (
            "Unrecognized servable version label: stable"
        )


class TestMetadata:
    def test_metadata_has_name_version_and_signatures(self, client):
        response = client.get("/v1/models/example/metadata")
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        document = response.json()
        assert list(document) == ["model_spec", "metadata"]
        assert document["model_spec"] == {
            "name": "example",
            "signature_name": "",
            "version": "3",
        }
        definitions = document["metadata"]["signature_def"]["signature_def"]
        assert set(definitions) == {
            "serving_default",
            "tensors",
            "mixed",
            "unpack",
            "total",
            "__saved_model_init_op",
        }

        def shape(*sizes):
            dims = [{"size": size, "name": ""} for size in sizes]
            return {"dim": dims, "unknown_rank": False}

        assert definitions["serving_default"] == {
            "inputs": {
                "image_bytes": {
                    "dtype": "DT_STRING",
                    "tensor_shape": shape("-1"),
                    "name": "serving_default_image_bytes:0",
                }
            },
            "outputs": {
                "embedding": {
                    "dtype": "DT_FLOAT",
                    "tensor_shape": shape("-1", "4"),
                    "name": definitions["serving_default"]["outputs"]["embedding"][
                        "name"
                    ],
                }
            },
            "method_name": "tensorflow/serving/predict",
            "defaults": {},
        }

    def test_metadata_of_a_version_names_that_one(self, client):
        response = client.get("/v1/models/example/versions/2/metadata")
        assert response.json()["model_spec"]["version"] == "2"

    def test_metadata_of_an_unknown_model_is_not_found(self, client):
        assert error_of(client.get("/v1/models/other/metadata"), 404) == (
            "Servable not found for request: Latest(other)"
        )

    def test_metadata_of_an_unknown_version_is_not_found(self, client):
        response = client.get("/v1/models/example/versions/1/metadata")
        assert error_of(response, 404) == (
            "Servable not found for request: Specific(example, 1)"
        )


class TestPaths:
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/v1/foo"),
            ("POST", "/v1/foo"),
            ("GET", "/v1/models/"),
            ("GET", "/v1/models/example/"),
            ("GET", "/v1/models/a/b"),
            ("GET", "/v1/models/example:predict"),
            ("POST", "/v1/models"),
            ("POST", "/v1/models/example"),
            ("POST", "/v1/models/example/metadata"),
            ("POST", "/v1/models/example/version/3:predict"),
            ("POST", "/v1/models/example/versions/three:predict"),
            ("POST", "/v1/models/example/versions/3/labels/stable:predict"),
            ("POST", "/v1/models/example:explain"),
            ("PUT", "/v1/models/example"),
            ("DELETE", "/v1/models/example"),
            ("OPTIONS", "/v1/models/example:predict"),
        ],
    )
    def test_other_calls_are_malformed(self, client, method, path):
        assert error_of(client.request(method, path), 400) == (
            f"Malformed request: {method} {path}"
        )

    @pytest.mark.parametrize("path", ["/", "/v1", "/v2/models/example", "/favicon.ico"])
    def test_other_paths_are_not_found(self, client, path):
        assert error_of(client.get(path), 404) == (
            "Not found. Models answer at /v1/models/NAME."
        )

    @pytest.mark.parametrize(
        ("method", "kind"), [("classify", "classification"), ("regress", "regression")]
    )
    def test_classify_and_regress_need_other_signatures(self, client, method, kind):
        response = client.post(f"/v1/models/example:{method}", content="{}")
        assert error_of(response, 400) == (
            f"Expected {kind} signature method_name to be tensorflow/serving/{method}. "
            "Was: tensorflow/serving/predict"
        )


class TestPredict:
    def test_rows_of_pictures_become_rows_of_embeddings(self, client):
        pictures = [b64(png(255, 0, 255)), b64(png(0, 255, 0))]
        response = predict(client, {"instances": pictures})
        assert response.headers["content-type"] == "application/json"
        assert response.text == (
            "{\n"
            '    "predictions": [[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]\n'
            "    ]\n"
            "}"
        )

    def test_rows_may_name_their_only_input(self, client):
        rows = [{"image_bytes": b64(png(0, 0, 255))}]
        response = predict(client, {"instances": rows})
        assert response.json() == {"predictions": [[0, 0, 1, 1]]}

    def test_columns_of_pictures_become_columns_of_embeddings(self, client):
        response = predict(client, {"inputs": {"image_bytes": [b64(png(0, 255, 0))]}})
        assert response.text == (
            "{\n"
            '    "outputs": [\n'
            "        [\n"
            "            0.0,\n"
            "            1.0,\n"
            "            0.0,\n"
            "            1.0\n"
            "        ]\n"
            "    ]\n"
            "}"
        )

    def test_version_in_the_path_is_used(self, client):
        document = {"instances": [b64(png(0, 0, 0))]}
        assert predict(client, document, "example/versions/2").status_code == 200

    def test_named_signature_is_called(self, client):
        picture = np.full((8, 8, 3), (0, 255, 0)).tolist()
        document = {"signature_name": "tensors", "instances": [picture]}
        assert predict(client, document).json() == {"predictions": [[0, 1, 0, 1]]}

    def test_several_inputs_and_outputs_are_named(self, client):
        rows = [{"number": 2, "text": "é"}, {"number": -1, "text": b64(b"b")}]
        response = predict(client, {"signature_name": "mixed", "instances": rows})
        assert response.text == (
            "{\n"
            '    "predictions": [\n'
            "        {\n"
            '            "even": true,\n'
            '            "text": "é",\n'
            '            "text_bytes": {\n'
            '                "b64": "w6k="\n'
            "            },\n"
            '            "third": 0.66666666666666663\n'
            "        },\n"
            "        {\n"
            '            "even": false,\n'
            '            "text": "B",\n'
            '            "text_bytes": {\n'
            '                "b64": "Yg=="\n'
            "            },\n"
            '            "third": -0.33333333333333331\n'
            "        }\n"
            "    ]\n"
            "}"
        )

    def test_output_without_rows_is_told_in_columns_only(self, client):
        document = {"signature_name": "total", "inputs": [1.5, 2]}
        assert predict(client, document).text == '{\n    "outputs": 3.5\n}'
        document["instances"] = document.pop("inputs")
        assert error_of(predict(client, document), 400) == (
            "Tensor name: total has no shape information "
        )

    def test_letter_case_of_the_path_does_not_matter(self, client):
        body = json.dumps({"instances": [b64(png(0, 0, 0))]})
        response = client.post("/V1/MODELS/example/Versions/3:PREDICT", content=body)
        assert response.status_code == 200

    def test_content_type_does_not_matter(self, client):
        response = client.post(
            "/v1/models/example:predict",
            content=json.dumps({"instances": [b64(png(0, 0, 0))]}),
            headers={"Content-Type": "text/plain"},
        )
        assert response.status_code == 200

    def test_unknown_model_is_not_found(self, client):
        response = predict(client, {"instances": [1]}, "other")
        assert error_of(response, 404) == (
            "Servable not found for request: Latest(other)"
        )

    def test_unknown_version_is_not_found(self, client):
        response = predict(client, {"instances": [1]}, "example/versions/7")
        assert error_of(response, 404) == (
            "Servable not found for request: Specific(example, 7)"
        )

    def test_unknown_signature_is_refused(self, client):
        document = {"signature_name": "nope", "instances": [1]}
        assert error_of(predict(client, document), 400) == (
            'Serving signature name: "nope" not found in signature def'
        )

    def test_missing_input_is_named(self, client):
        document = {"signature_name": "mixed", "inputs": {"number": [1]}}
        assert error_of(predict(client, document), 400) == (
            "Missing named input: text in 'inputs' object."
        )


class TestBadInput:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "JSON Parse error: The document is empty"),
            (b"{", "JSON Parse error: Missing a name for object member. at offset: 1"),
            (b"[1]", "JSON Value: [\n    1\n] Is not object"),
            (b"{}", "Missing 'inputs' or 'instances' key"),
            (b'{"images": [1]}', "Missing 'inputs' or 'instances' key"),
            (
                b'{"instances": [{"image": "x"}]}',
                "Failed to process element: 0 key: image of 'instances' list. Error: "
                "INVALID_ARGUMENT: JSON object: does not have named input: image",
            ),
            (
                b'{"instances": [{"b64": "!"}]}',
                "Failed to process element: 0 of 'instances' list. Error: "
                "INVALID_ARGUMENT: Unable to base64 decode",
            ),
            (
                b'{"instances": ["just text"]}',
                "Unknown image file format. One of JPEG, PNG, GIF, BMP, WebP required.",
            ),
            (
                b'{"instances": [["a"]]}',
                'Input "image_bytes" must have the shape [?] of the signature. '
                "Received: shape [1,1].",
            ),
            (
                b'{"instances": ' + b"[" * 90_000,
                "JSON Parse error: The document is nested too deeply.",
            ),
            (
                b'{"instances": [' + b"9" * 100_000 + b"]}",
                "JSON Parse error: Number too big to be stored in double.",
            ),
        ],
        ids=lambda value: value[:30] if isinstance(value, bytes) else "",
    )
    def test_bad_body_is_refused_with_the_reason(self, client, body, message):
        response = client.post("/v1/models/example:predict", content=body)
        assert error_of(response, 400) == message

    def test_long_body_is_refused(self, client):
        response = client.post("/v1/models/example:predict", content=b" " * 10**6)
        assert error_of(response, 413) == (
            "The request body may have at most 200000 bytes. Send fewer or smaller "
            "instances."
        )

    def test_failure_inside_the_model_is_a_server_error(self, client):
        document = {"signature_name": "unpack", "inputs": ["not gzip"]}
        assert error_of(predict(client, document), 500) != ""

    def test_server_answers_after_bad_requests(self, client):
        response = predict(client, {"instances": [b64(png(0, 0, 0))]})
        assert response.status_code == 200


class _Stub:
    """A model whose answers the test decides."""

    name = "stub"
    version = 1
    signatures = {  # noqa: RUF012
        "serving_default": Signature("", {"x": TensorSpec("string", None)}, {})
    }

    def __init__(self, predict):
        self.predict = predict


class TestLimits:
    def test_status_answers_while_predictions_run_and_no_more_run_than_allowed(self):
        release = threading.Event()
        started = threading.Semaphore(0)
        lock = threading.Lock()
        running_now, most = 0, 0

        def predict_slowly(inputs, signature_name):
            nonlocal running_now, most
            with lock:
                running_now += 1
                most = max(most, running_now)
            started.release()
            assert release.wait(timeout=20)
            with lock:
                running_now -= 1
            return {"y": np.ones(1, np.float32)}

        app = create_app([_Stub(predict_slowly)], max_concurrent_predictions=2)
        with running(app) as url:
            answers = []
            threads = [
                threading.Thread(
                    target=lambda: answers.append(
                        httpx.post(
                            f"{url}/v1/models/stub:predict",
                            content='{"instances": ["a"]}',
                            timeout=20,
                        )
                    )
                )
                for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            assert started.acquire(timeout=10)
            assert started.acquire(timeout=10)
            assert httpx.get(f"{url}/v1/models/stub").status_code == 200
            release.set()
            for thread in threads:
                thread.join()
        assert [answer.status_code for answer in answers] == [200] * 5
        assert most == 2

    def test_requests_beyond_those_that_may_wait_are_refused(self, monkeypatch):
        monkeypatch.setattr("serving.endpoint._MOST_WAITING", 1)
        release, started = threading.Event(), threading.Event()

        def predict_slowly(inputs, signature_name):
            started.set()
            assert release.wait(timeout=20)
            return {"y": np.ones(1, np.float32)}

        def post(url):
            body = '{"instances": ["a"]}'
            return httpx.post(f"{url}/v1/models/stub:predict", content=body, timeout=20)

        with running(create_app([_Stub(predict_slowly)])) as url:
            first = threading.Thread(target=post, args=[url])
            first.start()
            try:
                assert started.wait(timeout=10)
                assert error_of(post(url), 503) == (
                    "Too many requests are waiting. Retry."
                )
            finally:
                release.set()
                first.join()
            assert post(url).status_code == 200

    def test_unexpected_failure_is_a_server_error_with_its_message(self, caplog):
        def fail(inputs, signature_name):
            raise RuntimeError("the disk is gone")

        with (
            caplog.at_level(logging.ERROR),
            running(create_app([_Stub(fail)])) as url,
        ):
            response = httpx.post(
                f"{url}/v1/models/stub:predict", content='{"instances": ["secret"]}'
            )
        assert error_of(response, 500) == "RuntimeError: the disk is gone"
        assert "the disk is gone" in caplog.text
        assert "secret" not in caplog.text

    @pytest.mark.parametrize("name", ["max_body_bytes", "max_concurrent_predictions"])
    def test_limits_below_one_are_refused(self, name):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1"):
            create_app([], **{name: 0})


class TestStart:
    def test_import_does_not_load_tensorflow(self):
        script = "import serving.endpoint, sys; assert 'tensorflow' not in sys.modules"
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

    def test_taken_port_is_told_before_the_model_is_loaded(self):
        with open_socket("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(PortInUseError, match=f"Port {port} "):
                run("example", "no such folder", port=port)

    def test_missing_model_frees_the_port(self, tmp_path):
        with open_socket("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(FileNotFoundError, match="numbered folder"):
            run("example", tmp_path, port=port)
        open_socket("127.0.0.1", port).close()

    @pytest.mark.slow
    def test_process_serves_until_it_is_told_to_stop(self, base_path):
        script = (
            "import sys; from serving.endpoint import run; "
            "run('example', sys.argv[1], port=0)"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(base_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                line = process.stdout.readline()
                assert line.startswith("Serving version 3 of example at http://")
                url = line.split()[-1]
                response = httpx.post(
                    f"{url}:predict",
                    content=json.dumps({"instances": [b64(png(255, 255, 255))]}),
                    timeout=30,
                )
                assert response.json() == {"predictions": [[1, 1, 1, 1]]}
                process.terminate()
                assert process.wait(timeout=20) == 0
                assert b64(png(255, 255, 255))["b64"] not in process.stderr.read()
            finally:
                process.kill()
