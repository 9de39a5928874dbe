"""The whole endpoint: started, changed while it runs, and stopped."""

import argparse
import base64
import contextlib
import json
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import httpx2
import pytest
import tensorflow as tf
import trustme
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import (
    model_management_pb2,
    prediction_service_pb2_grpc,
)

import serving.__main__
import serving.endpoint.run
from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.options import ServerOptions, add_options, options_of
from serving.endpoint.run import batching_of, run
from serving.web.log import LogFormatter
from serving.web.sockets import PortInUseError, open_socket
from tests.support.example_model import png
from tests.support.running_endpoint import endpoint_here, running_endpoint
from tests.support.running_grpc import channel_to, predict_request, refusal

TOKEN = "a-token-of-the-tests-0123456789"


def add_version(base, version, model):
    """Add a version as a careful user does: whole, by a rename."""
    base.mkdir(parents=True, exist_ok=True)
    part = base / f"{version}.part"
    shutil.copytree(model, part)
    part.rename(base / str(version))


def body(*images):
    rows = [{"b64": base64.b64encode(image).decode()} for image in images]
    return json.dumps({"instances": rows})


def status_of(url):
    return httpx2.get(url, timeout=60).json()["model_version_status"]


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


class TestStart:
    def test_import_does_not_load_tensorflow(self):
        script = (
            "import serving.endpoint.run, serving.endpoint.rpc.server, sys; "
            "import serving.endpoint.rpc.services; "
            "assert 'tensorflow' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

    def test_taken_port_is_reported_before_the_model_is_loaded(self):
        with open_socket("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(PortInUseError, match=f"Port {port} "):
                run(ServerOptions("example", "no such folder", port=port))

    def test_missing_model_frees_both_ports(self, tmp_path):
        with (
            open_socket("127.0.0.1", 0) as first,
            open_socket("127.0.0.1", 0) as second,
        ):
            ports = [s.getsockname()[1] for s in (first, second)]
        with pytest.raises(FileNotFoundError, match="example"):
            run(ServerOptions("example", tmp_path, port=ports[0], grpc_port=ports[1]))
        for port in ports:
            open_socket("127.0.0.1", port).close()

    def test_broken_model_ends_the_start_with_the_reason(self, tmp_path):
        (tmp_path / "m" / "4").mkdir(parents=True)
        (tmp_path / "m" / "4" / "saved_model.pb").write_bytes(b"broken")
        with pytest.raises(ValueError, match="Version 4 of model 'm' cannot be"):
            run(ServerOptions("m", tmp_path / "m", port=0, grpc_port=0))

    @pytest.mark.parametrize(
        "option",
        [
            "batching_parameters_file",
            "monitoring_config_file",
            "ssl_config_file",
            "token_file",
        ],
    )
    def test_missing_file_of_configuration_ends_the_start(self, option):
        with pytest.raises(FileNotFoundError, match="no-such-file"):
            run(ServerOptions("m", "x", port=0, **{option: "no-such-file"}))


@pytest.mark.parametrize("has_ended", [True, False])
def test_process_does_not_wait_for_images_that_are_still_decoded(
    has_ended, monkeypatch
):
    @contextlib.contextmanager
    def opened(options):
        nothing = {"tls": None, "app": None, "listener": None, "drain": None}
        yield SimpleNamespace(lines=list, has_ended=lambda: has_ended, **nothing)

    left = []
    monkeypatch.setattr(serving.endpoint.run, "opened", opened)
    monkeypatch.setattr(serving.endpoint.run, "serve", lambda *args, **options: None)
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    run(ServerOptions("m", "x"))
    assert left == ([] if has_ended else [0])


def from_command_line(*options):
    parser = argparse.ArgumentParser()
    add_options(parser)
    return options_of(parser.parse_args([*map(str, options)]))


class TestOptions:
    MODEL = ("--model-name", "m", "--model-base-path", "x")

    def test_defaults_are_those_of_tf_serving_and_keep_other_machines_out(self):
        options = from_command_line(*self.MODEL)
        assert options == ServerOptions("m", "x")
        assert (options.host, options.port) == ("127.0.0.1", 8501)
        assert (options.grpc_port, options.no_grpc) == (8500, False)
        assert batching_of(options) == BatchingParameters()
        assert options.grpc_message_bytes == options.max_body_bytes == 2**26
        assert options.grpc_calls == 128
        assert options.file_system_poll_wait_seconds == 1
        assert options.timeout_seconds == 30
        assert options.token_file is options.ssl_config_file is None
        assert options.monitoring_config_file is None

    def test_each_option_of_the_command_line_fills_its_field(self):
        options = from_command_line(
            *("--model-config-file", "f", "--no-grpc", "--grpc-port", 0),
            *("--model-config-file-poll-wait-seconds", 0.5, "--log-format", "json"),
        )
        assert (options.no_grpc, options.grpc_port) == (True, 0)
        assert (options.model_config_file, options.log_format) == ("f", "json")
        assert options.model_config_file_poll_wait_seconds == 0.5

    def test_batching_can_be_set_and_left_out(self, tmp_path):
        file = tmp_path / "batching.txt"
        file.write_text("max_batch_size { value: 7 }")
        options = from_command_line(*self.MODEL, "--batching-parameters-file", file)
        assert batching_of(options).max_batch_size == 7
        options = from_command_line(*self.MODEL, "--no-batching")
        assert batching_of(options) == BatchingParameters.unbatched()

    @pytest.mark.parametrize(
        ("options", "rule"),
        [
            ([], "Give --model-name and --model-base-path, or --model-config-file"),
            (["--model-name", "m"], "Give --model-name and --model-base-path"),
            (
                [*MODEL, "--model-config-file", "f"],
                "--model-config-file must not be combined with --model-name",
            ),
            (
                [*MODEL, "--no-batching", "--batching-parameters-file", "f"],
                "--no-batching must not be combined with",
            ),
            (
                [*MODEL, "--model-config-file-poll-wait-seconds", "5"],
                "--model-config-file-poll-wait-seconds needs --model-config-file",
            ),
            (
                [
                    *("--model-config-file", "f"),
                    *("--model-config-file-poll-wait-seconds", "-1"),
                ],
                "--model-config-file-poll-wait-seconds must be at least 0",
            ),
        ],
    )
    def test_options_that_contradict_each_other_are_refused(
        self, capsys, options, rule
    ):
        assert serving.__main__.main(["run", *options]) != 0
        assert rule in capsys.readouterr().err


class TestEndpoint:
    """All parts together, in this process."""

    def test_new_version_is_taken_up_while_requests_run_and_none_fails(
        self, example_model, tmp_path
    ):
        base = tmp_path / "example"
        add_version(base, 1, example_model)
        options = {"model_name": "example", "model_base_path": base}
        with (
            endpoint_here(**options, file_system_poll_wait_seconds=0.1) as endpoint,
            channel_to(endpoint.grpc) as stubs,
        ):
            url = f"{endpoint.url}/v1/models/example"
            stop, answers = threading.Event(), []

            def ask():
                request = predict_request({"image_bytes": [png(255, 0, 0)]})
                own = []
                with httpx2.Client(timeout=60) as client:
                    while not stop.is_set():
                        reply = client.post(
                            f"{url}:predict", content=body(png(255, 0, 0))
                        )
                        assert reply.json() == {"predictions": [[1, 0, 0, 1]]}
                        spec = stubs.prediction.Predict(request, timeout=60).model_spec
                        own.append(spec.version.value)
                        answers.append(spec.version.value)
                return own

            def states():
                return {s["version"]: (s["state"], s["status"]) for s in status_of(url)}

            with ThreadPoolExecutor(4) as pool:
                asking = [pool.submit(ask) for _ in range(4)]
                try:
                    wait_for(lambda: answers)
                    add_version(base, 2, example_model)
                    wait_for(lambda: 2 in answers)
                    # A broken version must never take its place.
                    (base / "3").mkdir()
                    (base / "3" / "saved_model.pb").write_bytes(b"broken")
                    wait_for(lambda: states().get("3", ("",))[0] == "END")
                    seen = len(answers)
                    wait_for(lambda: len(answers) > seen + 10)
                finally:
                    stop.set()
            for asked in asking:
                assert asked.result() == sorted(asked.result())
            assert set(answers) == {1, 2}
            _, why = states()["3"]
            assert why["error_code"] != "OK"
            assert (
                "Version 3 of model 'example' cannot be loaded"
                in (why["error_message"])
            )
            wait_for(lambda: states()["1"][0] == "END")

    def test_configuration_labels_reload_metrics_and_ids(
        self, example_model, tmp_path, caplog
    ):
        caplog.set_level(logging.INFO, "serving.requests")
        for version in (1, 2):
            add_version(tmp_path / "colors", version, example_model)
        add_version(tmp_path / "other", 5, example_model)
        config = tmp_path / "models.config"
        config.write_text(
            f"""model_config_list {{ config {{
              name: "colors" base_path: "{tmp_path}/colors" model_platform: "tensorflow"
              model_version_policy {{ all {{}} }}
              version_labels {{ key: "stable" value: 1 }}
              version_labels {{ key: "canary" value: 2 }} }} }}"""
        )
        monitoring = tmp_path / "monitoring.config"
        monitoring.write_text('prometheus_config { enable: true path: "/metrics" }')
        options = {"model_config_file": config, "monitoring_config_file": monitoring}
        with endpoint_here(**options) as endpoint, channel_to(endpoint.grpc) as stubs:
            url = f"{endpoint.url}/v1/models/colors"
            for label, version in (("stable", 1), ("canary", 2)):
                reply = httpx2.get(f"{url}/labels/{label}/metadata", timeout=60)
                assert reply.json()["model_spec"]["version"] == str(version)
                (only,) = status_of(f"{url}/labels/{label}")
                assert only["version"] == str(version)
                request = predict_request({"image_bytes": [png(0, 0, 0)]}, "colors")
                request.model_spec.version_label = label
                answer = stubs.prediction.Predict(request, timeout=60)
                assert answer.model_spec.version.value == version
            reply = httpx2.post(
                f"{url}/labels/stable:predict",
                content=body(png(0, 255, 0)),
                headers={"X-Request-Id": "id-of-the-test"},
                timeout=60,
            )
            assert reply.json() == {"predictions": [[0, 1, 0, 1]]}
            assert reply.headers["X-Request-Id"] == "id-of-the-test"
            _, call = stubs.prediction.Predict.with_call(
                request, metadata=[("x-request-id", "id-by-grpc")]
            )
            assert ("x-request-id", "id-by-grpc") in call.trailing_metadata()
            metrics = httpx2.get(f"{endpoint.url}/metrics", timeout=60).text
            assert (
                ':tensorflow:serving:request_count{model_name="colors",status="OK"} 4'
            ) in metrics
            for sample in (
                'queuing_latency_count{thread_pool_name="batch_threads"} 4',
                "input_batch_size_sum{} 4",
                "processed_batch_size_count{} 4",
                'padding_size_sum{execution_batch_size="1"} 0',
            ):
                assert f":batching_session:{sample}" in metrics

            reload = model_management_pb2.ReloadConfigRequest()
            reload.config.model_config_list.config.add(
                name="other", base_path=str(tmp_path / "other")
            )
            response = stubs.model.HandleReloadConfigRequest(reload, timeout=60)
            assert response.status.error_code == 0
            (other,) = status_of(f"{endpoint.url}/v1/models/other")
            assert other["version"] == "5"
            wait_for(
                lambda: all(version["state"] == "END" for version in status_of(url))
            )
            gone = httpx2.post(f"{url}:predict", content=body(), timeout=60)
            assert gone.status_code == 404
        found = [getattr(line, "request_fields", None) for line in caplog.records]
        requests = {record.request_id: record for record in found if record is not None}
        record = requests["id-of-the-test"]
        assert (record.protocol, record.call) == ("REST", "predict")
        assert (record.model, record.version) == ("colors", 1)
        assert record.status.name == "OK"
        assert requests["id-by-grpc"].protocol == "GRPC"

    def test_tls_and_tokens_guard_both_ports(self, example_model, tmp_path, caplog):
        caplog.set_level(logging.INFO, "serving.requests")
        add_version(tmp_path / "example", 1, example_model)
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        pems = [certificate.private_key_pem, *certificate.cert_chain_pems]
        key, *chain = (pem.bytes().decode() for pem in pems)
        ssl_config = tmp_path / "ssl.config"
        ssl_config.write_text(
            f"server_key: {json.dumps(key)} server_cert: {json.dumps(''.join(chain))}"
        )
        tokens = tmp_path / "tokens"
        tokens.write_text(TOKEN)
        for file in (ssl_config, tokens):
            file.chmod(0o600)
        root = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(root))
        options = {"ssl_config_file": ssl_config, "token_file": tokens}
        options |= {"model_name": "example", "model_base_path": tmp_path / "example"}
        with endpoint_here(**options) as endpoint:
            assert endpoint.url.startswith("https://")
            url = f"{endpoint.url}/v1/models/example:predict"
            context = ssl.create_default_context(cafile=str(root))
            with httpx2.Client(verify=context, timeout=60) as client:
                refused = client.post(url, content=body(png(0, 0, 0)))
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
                client.headers["Authorization"] = f"Bearer {TOKEN}"
                reply = client.post(url, content=body(png(0, 0, 255)))
                assert reply.json() == {"predictions": [[0, 0, 1, 1]]}
            with pytest.raises(httpx2.ConnectError):
                httpx2.post(url, content=body(png(0, 0, 0)), timeout=60)
            assert ask_by_grpc(endpoint.grpc, root, None) == "UNAUTHENTICATED"
            assert ask_by_grpc(endpoint.grpc, root, "wrong" * 5) == "UNAUTHENTICATED"
            assert ask_by_grpc(endpoint.grpc, root, TOKEN) == "OK"
        formatter = LogFormatter("text")
        log = "\n".join(map(formatter.format, caplog.records))
        assert TOKEN not in log
        assert "BEGIN" not in log
        assert log.count("status=UNAUTHENTICATED") == 3

    def test_open_server_refuses_bombs_and_changes_of_its_models(
        self, example_model, tmp_path
    ):
        add_version(tmp_path / "example", 1, example_model)
        options = {"model_name": "example", "model_base_path": tmp_path / "example"}
        options |= {"max_pixels": 63, "host": "0.0.0.0"}  # noqa: S104
        with endpoint_here(**options) as endpoint:
            reply = httpx2.post(
                f"{endpoint.url}/v1/models/example:predict",
                content=body(png(1, 2, 3)),
                timeout=60,
            )
            assert reply.status_code == 400
            assert reply.json()["error"] == (
                'Input "image_bytes", row 0: the image has 8 x 8 pixels; at most 63 '
                "are decoded."
            )
            reload = model_management_pb2.ReloadConfigRequest()
            reload.config.model_config_list.config.add(
                name="other", base_path=str(tmp_path / "example")
            )
            port = endpoint.grpc.rpartition(":")[2]
            with channel_to(f"127.0.0.1:{port}") as stubs:
                code, text = refusal(stubs.model.HandleReloadConfigRequest, reload)
            assert code == "PERMISSION_DENIED"
            assert "asks for a token" in text


@pytest.mark.slow
class TestProcess:
    def test_sigterm_lets_running_requests_of_both_protocols_end(self, tmp_path):
        module = _Gate()
        tf.saved_model.save(module, str(tmp_path / "gate" / "1"), signatures=module.go)
        options = ["--model-name", "gate", "--model-base-path", tmp_path / "gate"]
        options += ["--no-batching", "--log-format", "json"]
        with running_endpoint(*options) as endpoint:
            address = f"{endpoint.url}/v1/models/gate:predict"
            with ThreadPoolExecutor(1) as pool, channel_to(endpoint.grpc) as stubs:
                health = stubs.health.Check(health_pb2.HealthCheckRequest(), timeout=60)
                assert health.status == health_pb2.HealthCheckResponse.SERVING
                request = predict_request({"path": str(tmp_path / "g")}, name="gate")
                call = stubs.prediction.Predict.future(request, timeout=60)
                path = str(tmp_path / "r")
                answer = pool.submit(
                    httpx2.post, address, json={"inputs": path}, timeout=60
                )
                for name in ("g", "r"):
                    wait_for((tmp_path / f"{name}.started").exists)
                endpoint.process.terminate()
                wait_for(lambda: health_of(stubs) != "SERVING")
                for name in ("g", "r"):
                    (tmp_path / f"{name}.go").touch()
                assert list(call.result().outputs["done"].bool_val) == [True]
                assert answer.result().json() == {"outputs": True}
            assert endpoint.process.wait(timeout=60) == 0
        found = [json.loads(line) for line in endpoint.lines if line.startswith("{")]
        ended = [line for line in found if line.get("call") == "predict"]
        assert {line["protocol"] for line in ended} == {"REST", "GRPC"}
        assert {line["status"] for line in ended} == {"OK"}

    @pytest.mark.full
    def test_killed_server_starts_again_at_once_on_the_same_ports(
        self, example_model, tmp_path
    ):
        add_version(tmp_path / "example", 1, example_model)
        options = ["--model-name", "example", "--model-base-path"]
        options += [tmp_path / "example"]
        with running_endpoint(*options) as endpoint:
            ports = [
                ("--port", endpoint.url.rpartition(":")[2]),
                ("--grpc-port", endpoint.grpc.rpartition(":")[2]),
            ]
            with httpx2.Client(timeout=60) as client:  # a connection that the kill cuts
                client.get(f"{endpoint.url}/v1/models/example")
                os.kill(endpoint.process.pid, signal.SIGKILL)
                endpoint.process.wait(timeout=60)
            again = [word for port in ports for word in port]
            with running_endpoint(*options, *again) as second:
                assert (second.url, second.grpc) == (endpoint.url, endpoint.grpc)
                reply = httpx2.get(f"{second.url}/v1/models/example", timeout=60)
                assert reply.status_code == 200


class _Gate(tf.Module):
    """Says that it runs by one file and ends when there is another."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, "path")])
    def go(self, path):
        with tf.control_dependencies([tf.io.write_file(path + ".started", "")]):
            found = tf.size(tf.io.matching_files(path + ".go"))
        while found == 0:
            found = tf.size(tf.io.matching_files(path + ".go"))
        return {"done": found > 0}


def health_of(stubs):
    try:
        answer = stubs.health.Check(health_pb2.HealthCheckRequest(), timeout=60)
    except grpc.RpcError as error:
        return error.code().name
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def ask_by_grpc(address, root, token):
    credentials = grpc.ssl_channel_credentials(root.read_bytes())
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    with grpc.secure_channel(address, credentials) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_request({"image_bytes": [png(0, 0, 0)]})
        try:
            stub.Predict(request, timeout=60, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"
