"""Real requests against a real SavedModel.

Oracle: TF Serving's REST documentation and its C++ source, bodies by hand.
"""

import asyncio
import base64
import gzip
import json
import logging
import re
import threading
import time

import httpx
import numpy as np
import pytest

from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler
from serving.endpoint.models.servable import Signature, TensorSpec
from serving.endpoint.predictor import Predictor
from serving.web.access import TokenAccess
from serving.web.monitoring import Monitoring
from serving.web.observer import RequestObserver
from tests.support.example_model import png
from tests.support.running_server import running
from tests.support.served import predictor, rest_app
from tests.support.token_files import write_tokens

MAX_BODY_BYTES = 200_000


@pytest.fixture(scope="module")
def client(example_servables):
    app = rest_app(example_servables, max_body_bytes=MAX_BODY_BYTES)
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

    def test_status_lists_all_versions_the_newest_first(self, client):
        response = client.get("/v1/models/example")
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.text == (
            '{\n "model_version_status": [\n'
            f"{self.STATUS.format(3)},\n{self.STATUS.format(2)}\n"
            " ]\n}\n"
        )

    def test_status_of_a_version_lists_that_one(self, client):
        assert client.get("/v1/models/example/versions/2").text == (
            '{\n "model_version_status": [\n' + self.STATUS.format(2) + "\n ]\n}\n"
        )

    def test_letter_case_of_the_name_matters(self, client):
        assert error_of(client.get("/v1/models/Example"), 404) == (
            "Could not find any versions of model Example"
        )

    def test_name_may_be_percent_encoded(self, client):
        assert client.get("/v1/models/%65xample").status_code == 200

    def test_query_is_ignored(self, client):
        assert client.get("/v1/models/example?verbose=1").status_code == 200

    @pytest.mark.parametrize("digits", ["9223372036854775808", "9" * 5000])
    def test_version_beyond_64_bits_is_refused(self, client, digits):
        response = client.get(f"/v1/models/example/versions/{digits}")
        assert error_of(response, 400) == (
            f"Failed to convert version: {digits} to numeric."
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

    def test_signature_that_classifies_is_not_supported(self):
        class Classifier(_Stub):
            signature_defs = {  # noqa: RUF012
                "serving_default": Signature("tensorflow/serving/classify", {}, {}),
                "other": Signature("tensorflow/serving/predict", {}, {}),
            }

        with running(rest_app([Classifier(None)])) as url:
            address = f"{url}/v1/models/stub:classify"
            assert error_of(httpx.post(address, content="{}"), 501) == (
                'Signature "serving_default" takes tf.train.Example, which this server '
                "does not support. Call Predict."
            )
            other = httpx.post(address, json={"signature_name": "other"})
            assert error_of(other, 400).endswith("Was: tensorflow/serving/predict")
            unknown = httpx.post(address, json={"signature_name": "unknown"})
            assert error_of(unknown, 400) == (
                "No signature was found with the name: unknown"
            )
            assert "JSON Parse error" in error_of(httpx.post(address), 400)


class TestPredict:
    def test_rows_of_images_become_rows_of_embeddings(self, client):
        images = [b64(png(255, 0, 255)), b64(png(0, 255, 0))]
        response = predict(client, {"instances": images})
        assert response.headers["content-type"] == "application/json"
        assert response.text == (
            "{\n"
            '    "predictions": [[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]\n'
            "    ]\n"
            "}"
        )

    def test_columns_of_images_become_columns_of_embeddings(self, client):
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


class TestBadInput:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"{", "JSON Parse error: Missing a name for object member. at offset: 1"),
            (b"[1]", "JSON Value: [\n    1\n] Is not object"),
            (
                b'{"instances": ["just text"]}',
                'Input "image_bytes", row 0: '
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


def statuses(caplog):
    """Return how the requests in the log ended."""
    records = [getattr(line, "request_fields", None) for line in caplog.records]
    return [record.status.name for record in records if record is not None]


def logged(caplog, *ids):
    """Return what is logged of requests, each of which has one line, by their ids.

    A client has its reply before that is logged: these are waited for, and the line of
    an earlier test that comes late is not one of them.
    """
    deadline = time.monotonic() + 60
    while True:
        records = [getattr(line, "request_fields", None) for line in caplog.records]
        found = [r for r in records if r is not None and r.request_id in ids]
        if len(found) >= len(ids) or time.monotonic() > deadline:
            assert [record.request_id for record in found] == list(ids)
            return found
        time.sleep(0.01)


def post(url, text="a", timeout=20):
    return httpx.post(
        f"{url}/v1/models/stub:predict",
        content=json.dumps({"instances": [text]}),
        timeout=timeout,
    )


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
            assert release.wait(timeout=60)
            with lock:
                running_now -= 1
            return {"y": np.ones(1, np.float32)}

        app = rest_app([_Stub(predict_slowly)], run_by=predictor(threads=2))
        with running(app) as url:
            answers = []
            threads = [
                threading.Thread(target=lambda: answers.append(post(url)))
                for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            assert started.acquire(timeout=60)
            assert started.acquire(timeout=60)
            assert httpx.get(f"{url}/v1/models/stub").status_code == 200
            release.set()
            for thread in threads:
                thread.join()
        assert [answer.status_code for answer in answers] == [200] * 5
        assert most == 2

    def test_requests_beyond_those_that_may_wait_are_refused(self):
        release, started = threading.Event(), threading.Semaphore(0)

        def predict_slowly(inputs, signature_name):
            started.release()
            assert release.wait(timeout=60)
            return {"y": np.ones(1, np.float32)}

        one_waits = BatchingParameters(
            max_batch_size=1,
            max_enqueued_batches=1,
            num_batch_threads=1,
            runs_alone=True,
        )
        app = rest_app([_Stub(predict_slowly)], run_by=predictor(batching=one_waits))
        with running(app) as url:
            answers = []
            threads = [
                threading.Thread(target=lambda: answers.append(post(url)))
                for _ in range(3)
            ]
            threads[0].start()
            assert started.acquire(timeout=60)
            for thread in threads[1:]:
                thread.start()
            # Of the two, one waits; the other one is told so.
            deadline = time.monotonic() + 60
            while not answers and time.monotonic() < deadline:
                time.sleep(0.01)
            (refused,) = answers
            assert (
                "The batch scheduling queue to which this task was submitted is "
                in (error_of(refused, 503))
            )
            assert refused.headers["retry-after"] == "1"
            release.set()
            for thread in threads:
                thread.join()
            assert sorted(a.status_code for a in answers) == [200, 200, 503]

    def test_prediction_that_takes_too_long_is_told_so(self):
        release = threading.Event()

        def predict_slowly(inputs, signature_name):
            assert release.wait(timeout=60)
            return {"y": np.ones(1, np.float32)}

        with running(rest_app([_Stub(predict_slowly)], timeout_seconds=0.2)) as url:
            assert error_of(post(url), 504) == (
                "The prediction did not end within 0.2 seconds."
            )
            release.set()
            assert post(url).status_code == 200

    def test_request_of_a_client_that_went_is_never_run(self, caplog):
        caplog.set_level(logging.INFO, "serving.requests")
        release, started = threading.Event(), threading.Semaphore(0)
        seen = []

        def predict_slowly(inputs, signature_name):
            seen.append(inputs["x"].tolist())
            started.release()
            assert release.wait(timeout=60)
            return {"y": np.ones(1, np.float32)}

        app = rest_app(
            [_Stub(predict_slowly)], run_by=predictor(threads=1), look_seconds=0.05
        )
        with running(app) as url:
            first = threading.Thread(target=post, args=[url])
            first.start()
            assert started.acquire(timeout=60)
            with pytest.raises(httpx.ReadTimeout):
                post(url, "gone", timeout=0.2)
            deadline = time.monotonic() + 60
            while "CANCELLED" not in statuses(caplog) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert "CANCELLED" in statuses(caplog)
            release.set()
            first.join()
            assert post(url, "last").status_code == 200
        assert seen == [[b"a"], [b"last"]]

    def test_request_that_the_server_cuts_off_is_logged_as_cancelled(self, caplog):
        release, started = threading.Event(), threading.Semaphore(0)

        def predict_slowly(inputs, signature_name):
            started.release()
            assert release.wait(timeout=60)
            return {"y": np.ones(1, np.float32)}

        async def cut_off():
            app = rest_app([_Stub(predict_slowly)])
            messages = [{"type": "http.request", "body": b'{"instances": ["a"]}'}]

            async def receive():
                return messages.pop() if messages else await asyncio.Future()

            async def send(message):
                raise AssertionError(message)

            path = "/v1/models/stub:predict"
            scope = {"type": "http", "method": "POST", "path": path, "headers": []}
            task = asyncio.create_task(app(scope, receive, send))
            assert await asyncio.to_thread(started.acquire, timeout=60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with caplog.at_level(logging.INFO, "serving.requests"):
            asyncio.run(cut_off())
        release.set()
        assert statuses(caplog) == ["CANCELLED"]

    def test_time_of_a_prediction_begins_when_its_body_is_there(self):
        model = _Stub(lambda inputs, signature_name: {"y": np.ones(1, np.float32)})
        with running(rest_app([model], timeout_seconds=0.3)) as url:
            blocked = threading.Event()

            def slowly():
                yield b'{"instances": '
                blocked.wait(0.5)
                yield b'["a"]}'

            reply = httpx.post(f"{url}/v1/models/stub:predict", content=slowly())
        assert reply.status_code == 200

    def test_images_of_a_long_body_are_not_looked_at_in_the_event_loop(self):
        threads = []

        class Watched(Predictor):
            def submit(self, *args):
                threads.append(threading.current_thread().name)
                return super().submit(*args)

        model = _Stub(lambda inputs, signature_name: {"y": np.ones(1, np.float32)})
        watched = Watched(BatchScheduler(BatchingParameters(runs_alone=True)))
        with running(rest_app([model], run_by=watched)) as url:
            assert post(url, "a" * 10**6).status_code == 200
        assert [name.startswith("rest") for name in threads] == [True]

    def test_long_body_whose_time_is_over_is_not_decoded(self):
        model = _Stub(lambda inputs, signature_name: {"y": np.ones(1, np.float32)})
        with running(rest_app([model], timeout_seconds=1e-9)) as url:
            reply = httpx.post(f"{url}/v1/models/stub:predict", content="{" * 10**6)
        # Decoded, it would be refused as bad JSON.
        assert "did not end within 1e-09" in error_of(reply, 504)

    def test_unexpected_failure_is_a_server_error_with_its_message(self, caplog):
        def fail(inputs, signature_name):
            raise RuntimeError("the disk is gone")

        with (
            caplog.at_level(logging.ERROR),
            running(rest_app([_Stub(fail)])) as url,
        ):
            response = httpx.post(
                f"{url}/v1/models/stub:predict", content='{"instances": ["secret"]}'
            )
        assert error_of(response, 500) == "RuntimeError: the disk is gone"
        assert "the disk is gone" in caplog.text
        assert "secret" not in caplog.text

    @pytest.mark.parametrize(
        ("limit", "rule"),
        [
            ({"max_body_bytes": 0}, "`max_body_bytes` must be at least 1"),
            ({"timeout_seconds": 0}, "`timeout_seconds` must be above 0"),
            ({"timeout_seconds": float("nan")}, "`timeout_seconds` must be above 0"),
        ],
    )
    def test_limits_out_of_range_are_refused(self, limit, rule):
        with pytest.raises(ValueError, match=rule):
            rest_app([], **limit)


class TestBesideTheAnswer:
    def test_long_replies_are_compressed_for_those_who_can_read_it(self, client):
        rows = {"instances": [b64(png(9, 9, 9))] * 1000}
        headers = {"Accept-Encoding": "gzip"}
        address = "/v1/models/example:predict"
        with client.stream("POST", address, json=rows, headers=headers) as reply:
            packed = b"".join(reply.iter_raw())
        assert reply.headers["content-encoding"] == "gzip"
        plain = client.post(address, json=rows, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        refusing = {"Accept-Encoding": "gzip;q=0"}
        refused = client.post(address, json=rows, headers=refusing)
        assert "content-encoding" not in refused.headers
        assert {reply.headers["vary"], plain.headers["vary"]} == {"Accept-Encoding"}
        assert gzip.decompress(packed) == plain.content
        assert len(packed) < len(plain.content) / 5

    def test_short_replies_are_not_compressed(self, client):
        reply = client.get("/v1/models/example", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in reply.headers

    def test_id_of_the_request_comes_back_and_stands_in_the_log(self, client, caplog):
        with caplog.at_level(logging.INFO, "serving.requests"):
            reply = client.get("/v1/models/example", headers={"X-Request-Id": "a.1_b"})
            (record,) = logged(caplog, "a.1_b")
        assert reply.headers["X-Request-Id"] == "a.1_b"
        assert (record.request_id, record.call) == ("a.1_b", "status")
        assert (record.model, record.status.name) == ("example", "OK")

    @pytest.mark.parametrize("sent", [None, "x" * 129, "a b", 'a"b'])
    def test_request_without_a_usable_id_gets_one(self, client, sent):
        headers = {} if sent is None else {"X-Request-Id": sent}
        reply = client.get("/v1/models/other", headers=headers)
        assert re.fullmatch("[0-9a-f]{32}", reply.headers["X-Request-Id"])

    def test_refused_request_is_logged_with_its_code_and_without_its_body(
        self, client, caplog
    ):
        with caplog.at_level(logging.INFO, "serving.requests"):
            for id_, model in (("first", "other"), ("second", "example")):
                client.post(
                    f"/v1/models/{model}:predict",
                    json={"instances": ["secret-text"]},
                    headers={"X-Request-Id": id_},
                )
            codes = [r.status.name for r in logged(caplog, "first", "second")]
            assert codes == ["NOT_FOUND", "INVALID_ARGUMENT"]
        assert "secret-text" not in caplog.text

    def test_metrics_count_requests_of_served_models_only(self, example_servables):
        observer = RequestObserver(Monitoring())
        app = rest_app(
            example_servables[1:],
            observer=observer,
            metrics_path="/metrics",
        )
        with running(app) as url, httpx.Client(base_url=url) as counted:
            predict(counted, {"instances": [b64(png(1, 1, 1))]})
            predict(counted, {"instances": ["x"]})
            predict(counted, {"instances": ["x"]}, "unknown")
            reply = counted.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain")
        name = ":tensorflow:serving:request_count"
        assert f'{name}{{model_name="example",status="OK"}} 1\n' in reply.text
        assert (
            f'{name}{{model_name="example",status="INVALID_ARGUMENT"}} 1\n'
        ) in reply.text
        assert "unknown" not in reply.text

    def test_there_are_no_metrics_unless_wanted(self, client):
        assert client.get("/monitoring/prometheus/metrics").status_code == 404

    def test_token_is_asked_of_every_call(self, example_servables, tmp_path):
        file = write_tokens(tmp_path / "tokens", "0123456789abcdef\n")
        app = rest_app(
            example_servables[1:],
            access=TokenAccess(file),
            observer=RequestObserver(Monitoring()),
            metrics_path="/metrics",
        )
        with running(app) as url, httpx.Client(base_url=url) as connection:
            paths = ["/v1/models/example", "/v1/models/example/metadata", "/metrics"]
            for path in [*paths, "/elsewhere"]:
                refused = connection.get(path)
                assert "Bearer" in error_of(refused, 401)
                assert refused.headers["www-authenticate"] == "Bearer"
            assert predict(connection, {"instances": ["x"]}).status_code == 401
            connection.headers["Authorization"] = "Bearer 0123456789abcdef"
            assert [connection.get(path).status_code for path in paths] == [200] * 3
            rows = {"instances": [b64(png(0, 0, 0))]}
            assert predict(connection, rows).status_code == 200
