"""Status, metadata, paths and metrics over REST. Oracle: TF Serving's documentation."""

import pytest

from tests.conformance.messages import b64, error_of, predict, says
from tests.support.served import not_found

METRICS = "/monitoring/prometheus/metrics"


def statuses(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/json")
    document = response.json()
    assert list(document) == ["model_version_status"]
    return document["model_version_status"]


def available(version):
    return {
        "version": str(version),
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }


class TestStatus:
    def test_status_lists_the_versions_of_the_model(self, rest, target):
        assert available(target.version) in statuses(rest.get(target.path))

    def test_status_of_a_version_is_that_one(self, rest, target):
        reply = rest.get(f"{target.path}/versions/{target.version}")
        assert statuses(reply) == [available(target.version)]

    def test_status_of_a_label_is_known(self, rest, target, label):
        """TF Serving looks at the version alone, and may list all of them."""
        found = statuses(rest.get(f"{target.path}/labels/{label}"))
        assert available(target.labeled_version) in found

    def test_status_of_an_unknown_version_is_not_found(self, rest, target):
        text = error_of(rest.get(f"{target.path}/versions/987654321"), 404)
        wanted = f"Could not find version 987654321 of model {target.model}"
        assert says(target, text, wanted)

    def test_status_of_an_unknown_model_is_not_found(self, rest, target):
        text = error_of(rest.get("/v1/models/no-such-model"), 404)
        assert says(target, text, "Could not find any versions of model no-such-model")


class TestMetadata:
    def test_metadata_has_name_version_and_signatures(self, rest, target):
        reply = rest.get(f"{target.path}/metadata")
        assert reply.status_code == 200
        document = reply.json()
        assert set(document) == {"model_spec", "metadata"}
        assert document["model_spec"] == {
            "name": target.model,
            "signature_name": "",
            "version": str(target.version),
        }
        definitions = document["metadata"]["signature_def"]["signature_def"]
        signature = definitions["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        assert signature["inputs"]["image_bytes"]["dtype"] == "DT_STRING"
        output = signature["outputs"]["embedding"]
        assert output["dtype"] == "DT_FLOAT"
        shape = output["tensor_shape"]
        assert [dim["size"] for dim in shape["dim"]] == ["-1", str(target.dimension)]
        assert shape["unknown_rank"] is False

    def test_metadata_of_a_version_names_it(self, rest, target):
        reply = rest.get(f"{target.path}/versions/{target.version}/metadata")
        assert reply.json()["model_spec"]["version"] == str(target.version)

    def test_metadata_of_a_label_names_its_version(self, rest, target, label):
        reply = rest.get(f"{target.path}/labels/{label}/metadata")
        assert reply.status_code == 200
        assert reply.json()["model_spec"]["version"] == str(target.labeled_version)
        if target.is_own:
            assert target.labeled_version == 1

    def test_metadata_of_what_is_not_there_is_not_found(self, rest, target):
        text = error_of(rest.get("/v1/models/no-such-model/metadata"), 404)
        assert says(target, text, not_found("no-such-model"))
        reply = rest.get(f"{target.path}/versions/987654321/metadata")
        wanted = not_found(target.model, 987654321)
        assert says(target, error_of(reply, 404), wanted)

    def test_metadata_of_an_unknown_label_are_refused(self, rest, target):
        reply = rest.get(f"{target.path}/labels/no_such_label/metadata")
        wanted = "Unrecognized servable version label: no_such_label"
        assert says(target, error_of(reply, 400), wanted)


class TestPaths:
    def test_model_must_be_named(self, rest, target):
        text = error_of(rest.get("/v1/models"), 400)
        assert says(target, text, "Missing model name in request.")

    @pytest.mark.parametrize(
        ("method", "end"),
        [
            ("GET", ":predict"),
            ("POST", ""),
            ("POST", ":explain"),
            ("POST", "/metadata"),
        ],
    )
    def test_other_calls_are_malformed(self, rest, target, method, end):
        path = f"{target.path}{end}"
        text = error_of(rest.request(method, path, content=b""), 400)
        assert says(target, text, f"Malformed request: {method} {path}")

    def test_path_outside_the_protocol_is_not_found(self, rest):
        assert rest.get("/no/such/path").status_code == 404


class TestMetrics:
    def count(self, rest, target):
        reply = rest.get(METRICS)
        if reply.status_code != 200 and not target.is_own:
            pytest.skip("the server was started without a --monitoring_config_file")
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/plain")
        return sum(
            float(line.rpartition(" ")[2])
            for line in reply.text.splitlines()
            if line.startswith(":tensorflow:serving:request_count{")
            and f'model_name="{target.model}"' in line
            and 'status="OK"' in line
        )

    def test_requests_are_counted_by_model_and_status(self, rest, target, images):
        before = self.count(rest, target)
        for _ in range(3):
            assert predict(
                rest, target.path, {"instances": [b64(images[0])]}
            ).is_success
        assert self.count(rest, target) >= before + 3

    def test_latency_and_run_time_are_reported(self, rest, target, images):
        predict(rest, target.path, {"instances": [b64(images[0])]})
        self.count(rest, target)
        text = rest.get(METRICS).text
        for name in ("request_latency", "runtime_latency"):
            assert any(
                line.startswith(f":tensorflow:serving:{name}_count{{")
                and f'model_name="{target.model}"' in line
                for line in text.splitlines()
            )
