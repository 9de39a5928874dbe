"""The endpoint behind nginx: REST below a path, and gRPC."""

import httpx2
import numpy as np
import pytest

from serving.client import EndpointClient
from tests.support.running_endpoint import running_endpoint
from tests.support.running_nginx import nginx
from tests.support.search_fixtures import encoded, write_color_model

pytestmark = pytest.mark.slow

REST = """
location /vision/ {{
    proxy_pass {url}/;
    proxy_set_header X-Forwarded-For 203.0.113.9;
}}
"""
GRPC = "location / {{ grpc_pass grpc://{grpc}; }}"
ORIGIN = {"Origin": "https://shop.test"}


def test_rest_and_grpc_answer_behind_nginx(tmp_path):
    model = tmp_path / "models" / "colors"
    write_color_model(model / "1")
    for name in ("rest", "rpc"):
        (tmp_path / name).mkdir()
    with (
        running_endpoint(
            *("--model-name", "colors", "--model-base-path", model),
            *("--trusted-proxy", "127.0.0.1", "--rest-api-enable-cors-support"),
        ) as endpoint,
        nginx(tmp_path / "rest", REST.format(url=endpoint.url)) as rest,
        nginx(
            tmp_path / "rpc", GRPC.format(grpc=endpoint.grpc), protocol=" http2"
        ) as rpc,
    ):
        url = f"{rest}/vision/v1/models/colors"
        rpc_url = f"{rpc.replace('http', 'grpc')}/colors"
        with EndpointClient(url) as one, EndpointClient(rpc_url) as other:
            embeddings = [each.embed([encoded((9, 90, 200))]) for each in (one, other)]
        assert embeddings[0].shape == (1, 12)
        np.testing.assert_array_equal(*embeddings)
        reply = httpx2.get(url, headers=ORIGIN, trust_env=False, timeout=60)
        assert reply.headers["access-control-allow-origin"] == "*"
    # The client that the proxy names stands in the log.
    assert "peer=203.0.113.9" in "".join(endpoint.lines)
