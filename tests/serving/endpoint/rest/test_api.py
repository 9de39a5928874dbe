"""What the conformance suite cannot ask of any server: exact bytes, limits, logs.

Oracle: TF Serving's REST documentation and its C++ source, bodies by hand.
"""

import asyncio
import base64
import contextlib
import gzip
import json
import logging
import queue
import re
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx2
import pytest

from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler
from serving.endpoint.models.servable import Signature
from serving.endpoint.predictor import Predictor
from serving.web.access import TokenAccess
from serving.web.image_memory import ImageMemory
from serving.web.monitoring import Monitoring
from serving.web.observer import RequestObserver
from tests.support.clock import Clock
from tests.support.example_model import png
from tests.support.refuses import refusals, refuses
from tests.support.running_server import running
from tests.support.served import predictor, rest_app
from tests.support.token_files import write_tokens
from tfdml.messages import bounded

STUB = "/v1/models/stub:predict"


class Ended(RequestObserver):
    """Hands over what is known of each request, once it has been logged."""

    def __init__(self):
        super().__init__()
        self._requests = queue.Queue()

    @contextlib.contextmanager
    def observe(self, *arguments):
        try:
            with super().observe(*arguments) as observed:
                yield observed
        finally:
            self._requests.put(observed)

    def next(self):
        return self._requests.get(timeout=60)

    def of(self, id_):
        """Wait for the request of this id; earlier ones are passed over."""
        while (request := self.next()).request_id != id_:
            pass
        return request


@pytest.fixture(scope="module")
def ended():
    return Ended()


@pytest.fixture(scope="module")
def client(example_servables, ended):
    app = rest_app(example_servables, max_body_bytes=200_000, observer=ended)
    with running(app) as url, httpx2.Client(base_url=url, timeout=60) as connection:
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


class TestModels:
    def test_status_lists_all_versions_the_newest_first(self, client):
        status = (
            "  {{\n"
            '   "version": "{}",\n'
            '   "state": "AVAILABLE",\n'
            '   "status": {{\n'
            '    "error_code": "OK",\n'
            '    "error_message": ""\n'
            "   }}\n"
            "  }}"
        )
        response = client.get("/v1/models/example")
        assert response.headers["content-type"] == "application/json"
        assert response.text == (
            '{\n "model_version_status": [\n'
            f"{status.format(3)},\n{status.format(2)}\n"
            " ]\n}\n"
        )

    def test_metadata_has_all_signatures(self, client):
        response = client.get("/v1/models/example/metadata")
        assert response.headers["content-type"] == "application/json"
        document = response.json()
        assert list(document) == ["model_spec", "metadata"]
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

        given = definitions["serving_default"]["outputs"]["embedding"]["name"]
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
                    "name": given,
                }
            },
            "method_name": "tensorflow/serving/predict",
            "defaults": {},
        }

    @pytest.mark.parametrize(
        "path", ["/v1/models/%65xample", "/v1/models/example?verbose=1"]
    )
    def test_name_may_be_percent_encoded_and_a_query_is_ignored(self, client, path):
        assert client.get(path).status_code == 200

    @pytest.mark.parametrize(
        ("path", "status", "message"),
        [
            ("/v1/models/Example", 404, "Could not find any versions of model Example"),
            (
                f"/v1/models/example/versions/{'9' * 5000}",
                400,
                bounded(f"Failed to convert version: {'9' * 5000} to numeric."),
            ),
            *(
                (path, 404, "Not found. Models answer at /v1/models/NAME.")
                for path in ("/", "/v1", "/v2/models/example", "/favicon.ico")
            ),
        ],
        ids=lambda value: value[:24] if isinstance(value, str) else "",
    )
    def test_what_is_not_served_is_refused(self, client, path, status, message):
        assert error_of(client.get(path), status) == message

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/v1/foo"),
            ("POST", "/v1/foo"),
            ("GET", "/v1/models/"),
            ("GET", "/v1/models/example/"),
            ("GET", "/v1/models/a/b"),
            ("POST", "/v1/models"),
            ("POST", "/v1/models/example/version/3:predict"),
            ("POST", "/v1/models/example/versions/three:predict"),
            ("POST", "/v1/models/example/versions/3/labels/stable:predict"),
            ("PUT", "/v1/models/example"),
            ("DELETE", "/v1/models/example"),
            ("OPTIONS", "/v1/models/example:predict"),
        ],
    )
    def test_other_calls_are_malformed(self, client, method, path):
        assert error_of(client.request(method, path), 400) == (
            f"Malformed request: {method} {path}"
        )

    def test_signature_that_classifies_is_not_supported(self, slow):
        slow.signature_defs = {
            "serving_default": Signature("tensorflow/serving/classify", {}, {}),
            "other": Signature("tensorflow/serving/predict", {}, {}),
        }
        with running(rest_app([slow])) as url:

            def classify(body):
                address = f"{url}/v1/models/stub:classify"
                return httpx2.post(address, content=body, timeout=60)

            assert error_of(classify("{}"), 501) == (
                'Signature "serving_default" takes tf.train.Example, which this server '
                "does not support. Call Predict."
            )
            other = classify('{"signature_name": "other"}')
            assert error_of(other, 400).endswith("Was: tensorflow/serving/predict")
            unknown = classify('{"signature_name": "unknown"}')
            assert error_of(unknown, 400) == (
                "No signature was found with the name: unknown"
            )
            assert "JSON Parse error" in error_of(classify(""), 400)


class TestPredict:
    def test_several_inputs_and_outputs_are_named(self, client):
        rows = [{"number": 2, "text": "é"}, {"number": -1, "text": b64(b"b")}]
        response = predict(client, {"signature_name": "mixed", "instances": rows})
        assert response.headers["content-type"] == "application/json"
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

    def test_output_without_rows_comes_in_columns_alone(self, client):
        document = {"signature_name": "total", "inputs": [1.5, 2]}
        assert predict(client, document).text == '{\n    "outputs": 3.5\n}'
        document["instances"] = document.pop("inputs")
        assert error_of(predict(client, document), 400) == (
            "Tensor name: total has no shape information "
        )

    @pytest.mark.parametrize(
        ("body", "message"),
        [
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
        ids=["text", "shape", "nesting", "digits"],
    )
    def test_bad_body_is_refused_with_the_reason(self, client, body, message):
        response = client.post("/v1/models/example:predict", content=body)
        # TensorFlow 2.21 reads JPEG XL, too.
        assert error_of(response, 400).replace("JPEG XL, ", "") == message
        good = predict(client, {"instances": [b64(png(0, 0, 0))]})
        assert good.json() == {"predictions": [[0, 0, 0, 1]]}

    def test_failure_inside_the_model_is_a_server_error(self, client):
        document = {"signature_name": "unpack", "inputs": ["not gzip"]}
        assert error_of(predict(client, document), 500) != ""

    def test_unexpected_failure_is_a_server_error_with_its_message(self, slow, caplog):
        def fail(inputs, signature_name):
            raise RuntimeError("the disk is gone")

        slow.predict = fail
        with caplog.at_level(logging.ERROR), running(rest_app([slow])) as url:
            response = post(url, 271828)
        assert error_of(response, 500) == "RuntimeError: the disk is gone"
        assert "the disk is gone" in caplog.text
        assert "271828" not in caplog.text


def post(url, value=1, **options):
    return httpx2.post(
        f"{url}{STUB}",
        content=json.dumps({"instances": [value]}),
        **{"timeout": 60, **options},
    )


@pytest.fixture
def asking(slow):
    """Post requests in threads of their own, which end with the test."""
    with ThreadPoolExecutor(8) as pool:
        yield lambda *arguments: pool.submit(post, *arguments)
        slow.release.set()


class TestLimits:
    def test_status_answers_while_predictions_run_and_no_more_run_than_allowed(
        self, slow, asking
    ):
        with running(rest_app([slow], run_by=predictor(threads=2))) as url:
            answers = [asking(url) for _ in range(5)]
            for _ in range(2):
                assert slow.started.acquire(timeout=60)
            assert httpx2.get(f"{url}/v1/models/stub", timeout=60).status_code == 200
            assert not slow.started.acquire(timeout=0.2)
            slow.release.set()
            assert [answer.result().status_code for answer in answers] == [200] * 5

    def test_requests_beyond_those_that_may_wait_are_refused(self, slow, asking):
        one_waits = BatchingParameters(
            max_batch_size=1,
            max_enqueued_batches=1,
            num_batch_threads=1,
            runs_alone=True,
        )
        app = rest_app([slow], run_by=predictor(batching=one_waits))
        with running(app) as url:
            first = asking(url)
            assert slow.started.acquire(timeout=60)
            # Of the two, one waits; the other one is refused.
            ended, left = wait([asking(url), asking(url)], 60, FIRST_COMPLETED)
            refused = ended.pop().result()
            assert (
                "The batch scheduling queue to which this task was submitted is full"
                in error_of(refused, 503)
            )
            assert refused.headers["retry-after"] == "1"
            slow.release.set()
            assert {answer.result().status_code for answer in (first, *left)} == {200}

    def test_prediction_that_takes_too_long_is_ended(self, slow, asking):
        clock = Clock()
        app = rest_app([slow], timeout_seconds=30, look_seconds=0.01, clock=clock)
        with running(app) as url:
            answer = asking(url)
            assert slow.started.acquire(timeout=60)
            clock.now += 29
            assert not wait([answer], 0.2).done
            clock.now += 2
            assert error_of(answer.result(), 504) == (
                "The prediction did not end within 30 seconds."
            )

    def test_time_of_a_prediction_begins_when_its_body_is_there(self, prompt):
        clock = Clock()
        app = rest_app([prompt], timeout_seconds=30, clock=clock)

        async def slowly():
            yield b'{"instances": '
            clock.now += 100
            yield b"[1]}"

        async def ask():
            # Without a socket between, which would take the parts before they are read.
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport) as client:
                return await client.post(f"http://app{STUB}", content=slowly())

        assert asyncio.run(ask()).status_code == 200

    def test_long_body_whose_time_is_over_is_not_decoded(self, slow):
        with running(rest_app([slow], timeout_seconds=1e-9)) as url:
            reply = httpx2.post(f"{url}{STUB}", content="{" * 10**6, timeout=60)
        # Decoded, it would be refused as bad JSON.
        assert "did not end within 1e-09" in error_of(reply, 504)

    def test_images_of_a_long_body_are_not_looked_at_in_the_event_loop(self, prompt):
        threads = []

        class Watched(Predictor):
            def submit(self, *args):
                threads.append(threading.current_thread().name)
                return super().submit(*args)

        with BatchScheduler(BatchingParameters(runs_alone=True)) as scheduler:
            app = rest_app([prompt], run_by=Watched(scheduler))
            body = b'{"instances": [1' + b" " * 10**6 + b"]}"
            with running(app) as url:
                reply = httpx2.post(f"{url}{STUB}", content=body, timeout=60)
        assert reply.status_code == 200
        assert [name.startswith("rest") for name in threads] == [True]

    def test_request_of_a_client_that_went_is_never_run(self, slow, asking):
        ended = Ended()
        app = rest_app(
            [slow], run_by=predictor(threads=1), look_seconds=0.05, observer=ended
        )
        with running(app) as url:
            first = asking(url, 1)
            assert slow.started.acquire(timeout=60)
            with pytest.raises(httpx2.ReadTimeout):
                post(url, 2, timeout=httpx2.Timeout(60, read=0.2))
            assert ended.next().status.name == "CANCELLED"
            slow.release.set()
            assert first.result().status_code == 200
            assert post(url, 3).status_code == 200
        assert slow.seen == [[1], [3]]

    def test_request_that_the_server_cuts_off_is_told_so(self, slow):
        ended, sent = Ended(), []

        async def cut_off():
            app = rest_app([slow], observer=ended)
            messages = [{"type": "http.request", "body": b'{"instances": [1]}'}]

            async def receive():
                return messages.pop() if messages else await asyncio.Future()

            async def send(message):
                sent.append(message)

            scope = {"type": "http", "method": "POST", "path": STUB, "headers": []}
            task = asyncio.create_task(app(scope, receive, send))
            assert await asyncio.to_thread(slow.started.acquire, timeout=60)
            task.cancel()
            await task

        asyncio.run(cut_off())
        assert ended.next().status.name == "UNAVAILABLE"
        head, body = sent
        assert head["status"] == 503
        assert (b"retry-after", b"1") in head["headers"]
        assert "stopped" in json.loads(body["body"])["error"]

    def test_long_body_is_refused(self, client):
        response = client.post("/v1/models/example:predict", content=b" " * 10**6)
        assert error_of(response, 413) == (
            "The request body may have at most 200000 bytes. Send fewer or smaller "
            "instances."
        )

    def test_long_body_that_takes_more_memory_than_there_is_is_refused(
        self, example_servables
    ):
        # Each of these objects takes 80 times its JSON.
        body = b'{"instances":[' + b"{}," * 60_000 + b"{}]}"
        memory = ImageMemory(10**7, option="--image-memory-bytes")
        scheduler = BatchScheduler(BatchingParameters(), memory=memory)
        app = rest_app(example_servables, run_by=Predictor(scheduler))
        with scheduler, running(app) as url:
            response = httpx2.post(
                f"{url}/v1/models/example:predict", content=body, timeout=60
            )
            assert error_of(response, 400) == (
                "The JSON body needs 19 MB of memory to be decoded; this service has "
                "10 MB for it. Send a smaller JSON body; or give the service more "
                "memory, or more of it to this by `--image-memory-bytes`."
            )

    @refusals(
        ("max_body_bytes", 0, "must be at least 1"),
        ("timeout_seconds", 0, "must be above 0"),
        ("timeout_seconds", float("nan"), "must be above 0"),
    )
    def test_limits_out_of_range_are_refused(self, argument, value, rule):
        refuses(
            rest_app, argument=argument, value=value, rule=rule, valid={"servables": []}
        )


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

    def test_id_of_the_request_comes_back_and_stands_in_the_log(self, client, ended):
        reply = client.get("/v1/models/example", headers={"X-Request-Id": "a.1_b"})
        assert reply.headers["X-Request-Id"] == "a.1_b"
        request = ended.of("a.1_b")
        assert (request.call, request.model) == ("status", "example")
        assert request.status.name == "OK"

    @pytest.mark.parametrize("sent", [None, "x" * 129, "a b", 'a"b'])
    def test_request_without_a_usable_id_gets_one(self, client, sent):
        headers = {} if sent is None else {"X-Request-Id": sent}
        reply = client.get("/v1/models/other", headers=headers)
        assert re.fullmatch("[0-9a-f]{32}", reply.headers["X-Request-Id"])

    @pytest.mark.parametrize(
        ("model", "status"), [("other", "NOT_FOUND"), ("example", "INVALID_ARGUMENT")]
    )
    def test_refused_request_is_logged_with_its_code_and_without_its_body(
        self, client, ended, caplog, model, status
    ):
        with caplog.at_level(logging.INFO, "serving.requests"):
            client.post(
                f"/v1/models/{model}:predict",
                json={"instances": ["secret-text"]},
                headers={"X-Request-Id": f"refused-{model}"},
            )
            assert ended.of(f"refused-{model}").status.name == status
        assert f"refused-{model}" in {
            record.request_fields.request_id
            for record in caplog.records
            if hasattr(record, "request_fields")
        }
        assert "secret-text" not in caplog.text

    def test_metrics_count_requests_of_served_models_only(self, example_servables):
        observer = RequestObserver(Monitoring())
        app = rest_app(
            example_servables[1:],
            observer=observer,
            metrics_path="/metrics",
        )
        with running(app) as url, httpx2.Client(base_url=url, timeout=60) as counted:
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
        with running(app) as url, httpx2.Client(base_url=url, timeout=60) as connection:
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


ORIGIN = {"Origin": "https://shop.example"}
PREFLIGHT = ORIGIN | {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type",
}


class TestPagesOfOtherOrigins:
    """`--rest_api_enable_cors_support` of TF Serving."""

    def test_they_are_let_in_where_this_is_wanted(self, prompt, tmp_path):
        file = write_tokens(tmp_path / "tokens", "0123456789abcdef\n")
        app = rest_app([prompt], allow_cors=True, access=TokenAccess(file))
        path = "/v1/models/stub:predict"
        with running(app) as url, httpx2.Client(base_url=url, timeout=60) as connection:
            # A browser asks without the token whether it may send it.
            may = connection.options(path, headers=PREFLIGHT)
            assert may.status_code == 200
            assert may.headers["access-control-allow-origin"] == "*"
            assert "POST" in may.headers["access-control-allow-methods"]
            allowed = may.headers["access-control-allow-headers"].lower()
            assert {"authorization", "content-type"} <= set(allowed.split(", "))
            refused = connection.post(path, headers=ORIGIN)
            assert error_of(refused, 401)
            assert refused.headers["access-control-allow-origin"] == "*"
            answer = connection.post(
                path,
                headers=ORIGIN | {"Authorization": "Bearer 0123456789abcdef"},
                content=b'{"instances": [1]}',
            )
            assert answer.json() == {"predictions": [2.0]}
            assert answer.headers["access-control-allow-origin"] == "*"
            exposed = answer.headers["access-control-expose-headers"]
            assert "X-Model-Fingerprint" in exposed

    def test_they_are_kept_out_by_default(self, client):
        may = client.options("/v1/models/example:predict", headers=PREFLIGHT)
        assert error_of(may, 400).startswith("Malformed request: OPTIONS")
        answer = client.get("/v1/models/example", headers=ORIGIN)
        assert not [name for name in answer.headers if name.startswith("access-")]
