"""Servers that the fuzzers send to."""

import base64
import sys

import httpx2
import numpy as np
import pytest

from tests.fuzz.server_process import ANSWER_SECONDS, ServerProcess
from tests.support.example_model import png, write_example_model

MAX_BODY_BYTES = 2**20
MAX_PIXELS = 2**20


@pytest.fixture(autouse=True)
def _is_linux():
    if not sys.platform.startswith("linux"):
        pytest.skip("the memory of a process is read from /proc")


@pytest.fixture(params=[100, pytest.param(400, marks=pytest.mark.full)])
def examples(request):
    """The number of damaged requests."""
    return request.param


@pytest.fixture(scope="package")
def example_server(tmp_path_factory):
    """The example model: images, numbers, strings, several signatures."""
    path = tmp_path_factory.mktemp("fuzz") / "example"
    write_example_model(path / "1")

    def check(server):
        document = {
            "signature_name": "mixed",
            "inputs": {"number": [6, 9], "text": ["ab", {"b64": "Y2Q="}]},
        }
        response = httpx2.post(
            f"{server.url}:predict",
            json=document,
            timeout=ANSWER_SECONDS,
            trust_env=False,
        )
        assert response.status_code == 200, response.text
        assert response.json()["outputs"] == {
            "third": [2.0, 3.0],
            "even": [True, False],
            "text": ["AB", "CD"],
            "text_bytes": [{"b64": "YWI="}, {"b64": "Y2Q="}],
        }

    options = ("--max-body-bytes", str(MAX_BODY_BYTES))
    server = ServerProcess("example", path, check, options)
    yield server
    server.stop()


@pytest.fixture(scope="package")
def embedder_server(tmp_path_factory):
    """An embedder as `tfdml` exports it, for encoded images."""
    import keras

    from tfdml.export import export_embedder
    from tfdml.models import build_embedder

    path = tmp_path_factory.mktemp("fuzz") / "embedder"
    # One start in 300 has nothing but dead units for an image of one color.
    keras.utils.set_random_seed(1)
    export_embedder(build_embedder(32, 8, widths=(4, 8)), path / "1")
    image = {"b64": base64.b64encode(png(200, 90, 30)).decode()}
    answers = []

    def check(server):
        response = httpx2.post(
            f"{server.url}:predict",
            json={"inputs": {"image_bytes": [image]}},
            timeout=ANSWER_SECONDS,
            trust_env=False,
        )
        assert response.status_code == 200, response.text
        answers.append(response.json()["outputs"][0])
        np.testing.assert_allclose(np.linalg.norm(answers[-1]), 1, rtol=1e-4)
        np.testing.assert_allclose(answers[-1], answers[0], atol=1e-4)

    options = ("--max-pixels", str(MAX_PIXELS))
    server = ServerProcess("embedder", path, check, options)
    yield server
    server.stop()
