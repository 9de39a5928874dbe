"""The client over HTTPS, with an authority of the test's own."""

import contextlib
import ssl

import numpy as np
import pytest
import trustme
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from serving.client import Credentials, EndpointClient, EndpointError, Retries
from tests.serving.client.test_client import METADATA, png, random_pixels
from tests.support.running_server import running_uvicorn

NEVER = Retries(count=0)
# A retry would begin in ten minutes.
LATE = Retries(seconds=3600, first_wait=600, longest_wait=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("127.0.0.1", "client.test"):
        certificate = authority.issue_cert(name)
        certificate.private_key_pem.write_to_path(folder / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return folder


@contextlib.contextmanager
def serving_https(folder, **options):
    async def metadata(request):
        return JSONResponse(METADATA)

    async def predict(request):
        return JSONResponse({"predictions": [[1.0, 0.0]]})

    model = "/v1/models/colors"
    app = Starlette(
        routes=[
            Route(f"{model}/metadata", metadata),
            Route(f"{model}:predict", predict, methods=["POST"]),
        ]
    )
    config = uvicorn.Config(
        app,
        log_level="critical",
        ssl_certfile=folder / "127.0.0.1.pem",
        ssl_keyfile=folder / "127.0.0.1.key",
        **options,
    )
    with running_uvicorn(config) as listener:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}{model}"


def embed_one(url, credentials, retries=NEVER):
    with EndpointClient(url, retries=retries, credentials=credentials) as client:
        return client.embed([png(random_pixels(5, 3, 4))])


def test_endpoint_with_a_certificate_of_the_given_authority_is_trusted(folder):
    with serving_https(folder) as url:
        rows = embed_one(url, Credentials(ca_file=folder / "ca.pem"))
        np.testing.assert_array_equal(rows, [[1, 0]])


def test_certificate_that_is_refused_is_not_asked_for_again(folder):
    wanted = r"is not trusted \(.*certificate verify failed.*`--ca-file`"
    with serving_https(folder) as url:
        with pytest.raises(EndpointError, match=wanted) as caught:
            embed_one(url, Credentials(), LATE)
        assert not caught.value.may_pass
        elsewhere = url.replace("127.0.0.1", "localhost")
        with pytest.raises(EndpointError, match=r"not valid for 'localhost'.*host"):
            embed_one(elsewhere, Credentials(ca_file=folder / "ca.pem"), LATE)


def test_endpoint_that_asks_for_a_certificate_gets_it(folder):
    known = Credentials(
        ca_file=folder / "ca.pem",
        certificate_file=folder / "client.test.pem",
        key_file=folder / "client.test.key",
    )
    wanted = {"ssl_ca_certs": folder / "ca.pem", "ssl_cert_reqs": ssl.CERT_REQUIRED}
    with serving_https(folder, **wanted) as url:
        np.testing.assert_array_equal(embed_one(url, known), [[1, 0]])
        with pytest.raises(EndpointError, match="cannot be reached"):
            embed_one(url, Credentials(ca_file=folder / "ca.pem"))


@pytest.mark.parametrize("url", ["https://h/v1/models/m", "grpcs://h/m"])
def test_file_that_is_missing_or_something_else_is_named(folder, url):
    def connect(**files):
        EndpointClient(url, credentials=Credentials(**files))

    with pytest.raises(FileNotFoundError, match=r"none\.pem"):
        connect(ca_file="none.pem")
    with pytest.raises(ValueError, match=r"must be in PEM.*127\.0\.0\.1\.key"):
        connect(ca_file=folder / "127.0.0.1.key")
    foreign = {"certificate_file": folder / "127.0.0.1.pem"}
    with pytest.raises(ValueError, match="the key that of the certificate"):
        connect(**foreign, key_file=folder / "client.test.key")
    with pytest.raises(FileNotFoundError, match=r"none\.key"):
        connect(**foreign, key_file=folder / "none.key")
