"""The client over encrypted connections, with an authority of the test's own."""

import numpy as np
import pytest
import trustme

from serving.client import Credentials, EndpointClient, EndpointError, Retries
from tests.support.answering_model import PROTOCOLS, answering
from tests.support.random_pixels import png, random_pixels

ANSWER = {"embedding": [[1.0, 0.0]]}
NEVER = Retries(count=0)
# A retry would begin in ten minutes.
LATE = Retries(seconds=3600, first_wait=600, longest_wait=600)

both = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.issue_cert("127.0.0.1")


@pytest.fixture(scope="module")
def folder(authority, certificate, tmp_path_factory):
    """The files of a client: of the authority, its own, and the key of another one."""
    folder = tmp_path_factory.mktemp("certificates")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("client.test")
    own.private_key_pem.write_to_path(folder / "client.key")
    own.cert_chain_pems[0].write_to_path(folder / "client.pem")
    certificate.private_key_pem.write_to_path(folder / "other.key")
    return folder


def embed_one(url, credentials, retries=NEVER):
    with EndpointClient(url, retries=retries, credentials=credentials) as client:
        return client.embed([png(random_pixels(5, 3, 4))])


@both
def test_endpoint_with_a_certificate_of_the_given_authority_is_trusted(
    protocol, certificate, folder
):
    credentials = Credentials("abc", ca_file=folder / "ca.pem")
    with answering(protocol, ANSWER, certificate=certificate) as model:
        np.testing.assert_array_equal(embed_one(model.url, credentials), [[1, 0]])
    assert model.headers[0]["authorization"] == "Bearer abc"


@both
def test_certificate_that_is_refused_is_not_asked_for_again(
    protocol, certificate, folder
):
    wanted = {
        "REST": r"is not trusted \(.*certificate verify failed.*`--ca-file`",
        "gRPC": "is not trusted .*`--ca-file`",
    }
    other_host = {**wanted, "REST": r"not valid for 'localhost'.*host"}
    with answering(protocol, ANSWER, certificate=certificate) as model:
        with pytest.raises(EndpointError, match=wanted[protocol]) as caught:
            embed_one(model.url, Credentials(), LATE)
        assert not caught.value.may_pass
        elsewhere = model.url.replace("127.0.0.1", "localhost")
        with pytest.raises(EndpointError, match=other_host[protocol]):
            embed_one(elsewhere, Credentials(ca_file=folder / "ca.pem"), LATE)


@both
def test_endpoint_that_asks_for_a_certificate_gets_it(
    protocol, authority, certificate, folder
):
    known = Credentials(
        ca_file=folder / "ca.pem",
        certificate_file=folder / "client.pem",
        key_file=folder / "client.key",
    )
    with answering(
        protocol, ANSWER, certificate=certificate, clients=authority
    ) as model:
        np.testing.assert_array_equal(embed_one(model.url, known), [[1, 0]])
        with pytest.raises(EndpointError, match="cannot be reached"):
            embed_one(model.url, Credentials(ca_file=folder / "ca.pem"))


@pytest.mark.parametrize("url", ["https://h/v1/models/m", "grpcs://h/m"])
def test_file_that_is_missing_or_something_else_is_named(folder, url):
    def connect(**files):
        EndpointClient(url, credentials=Credentials(**files))

    with pytest.raises(FileNotFoundError, match=r"none\.pem"):
        connect(ca_file="none.pem")
    with pytest.raises(ValueError, match=r"must be in PEM.*client\.key"):
        connect(ca_file=folder / "client.key")
    own = {"certificate_file": folder / "client.pem"}
    with pytest.raises(ValueError, match="the key that of the certificate"):
        connect(**own, key_file=folder / "other.key")
    with pytest.raises(FileNotFoundError, match=r"none\.key"):
        connect(**own, key_file=folder / "none.key")
