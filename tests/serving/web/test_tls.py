"""TLS from an SSLConfig, with real clients over real sockets."""

import contextlib
import datetime
import functools
import glob
import os
import ssl
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx2
import pytest
import trustme
import uvicorn
from cryptography.hazmat.primitives import serialization
from google.protobuf import text_format
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from serving.web.config_messages import message_class
from serving.web.tls import grpc_credentials, read_ssl_config, ssl_context_for_uvicorn
from tests.support.running_server import running_uvicorn

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


@functools.cache
def authority():
    return trustme.CA()


@functools.cache
def server_certificate():
    return authority().issue_cert("127.0.0.1", "localhost")


@functools.cache
def client_certificate():
    return client_authority().issue_cert("client@example.org")


@functools.cache
def client_authority():
    return trustme.CA()


def key_of(certificate):
    return certificate.private_key_pem.bytes().decode()


def chain_of(certificate):
    return "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems)


def write_config(folder, mode=0o600, **changes):
    fields = {
        "server_key": key_of(server_certificate()),
        "server_cert": chain_of(server_certificate()),
        **changes,
    }
    file = folder / "ssl.config"
    message = message_class("SSLConfig")(**fields)
    file.write_text(text_format.MessageToString(message))
    file.chmod(mode)
    return file


def verifying(folder):
    """Write a config that asks clients for a certificate."""
    ca = client_authority().cert_pem.bytes().decode()
    return write_config(folder, custom_ca=ca, client_verify=True)


def client_context(*, with_certificate=False):
    context = ssl.create_default_context(
        cadata=authority().cert_pem.bytes().decode("ascii")
    )
    if with_certificate:
        client_certificate().configure_cert(context)
    return context


@contextlib.contextmanager
def running_https(config):
    """Serve one page by uvicorn; yields its address."""
    context = ssl_context_for_uvicorn(config)
    app = Starlette(
        routes=[Route("/", lambda request: PlainTextResponse(request.url.scheme))]
    )
    uvicorn_config = uvicorn.Config(
        app, ssl_context_factory=lambda *_: context, log_level="error", ws="none"
    )
    with running_uvicorn(uvicorn_config) as listener:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def running_grpcs(config):
    """Serve one call by gRPC; yields the address."""
    server = grpc.server(ThreadPoolExecutor(2))
    ask = grpc.unary_unary_rpc_method_handler(
        lambda request, context: (
            request + context.auth_context()["transport_security_type"][0]
        )
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("test.Service", {"Ask": ask})]
    )
    port = server.add_secure_port("127.0.0.1:0", grpc_credentials(config))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def ask(address, credentials):
    with grpc.secure_channel(address, credentials) as channel:
        return channel.unary_unary("/test.Service/Ask")(b"over ", timeout=60)


def channel_credentials(*, with_certificate=False):
    if not with_certificate:
        return grpc.ssl_channel_credentials(authority().cert_pem.bytes())
    return grpc.ssl_channel_credentials(
        authority().cert_pem.bytes(),
        key_of(client_certificate()).encode(),
        chain_of(client_certificate()).encode(),
    )


def test_https_client_that_trusts_the_authority_is_served(tmp_path):
    config = read_ssl_config(write_config(tmp_path))
    with running_https(config) as url:
        assert httpx2.get(url, verify=client_context(), timeout=60).text == "https"
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx2.get(url, verify=ssl.create_default_context(), timeout=60)
        with pytest.raises(httpx2.RemoteProtocolError):
            httpx2.get(url.replace("https", "http"), timeout=60)


def test_https_refuses_what_came_before_tls_1_2(tmp_path):
    context = ssl_context_for_uvicorn(read_ssl_config(write_config(tmp_path)))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_https_client_must_show_a_certificate_if_clients_are_verified(tmp_path):
    with running_https(read_ssl_config(verifying(tmp_path))) as url:
        known = client_context(with_certificate=True)
        assert httpx2.get(url, verify=known, timeout=60).text == "https"
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            httpx2.get(url, verify=client_context(), timeout=60)


def test_grpc_client_that_trusts_the_authority_is_served(tmp_path):
    with running_grpcs(read_ssl_config(write_config(tmp_path))) as address:
        assert ask(address, channel_credentials()) == b"over ssl"
        stranger = grpc.ssl_channel_credentials(client_authority().cert_pem.bytes())
        with pytest.raises(grpc.RpcError) as caught:
            ask(address, stranger)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_grpc_client_must_show_a_certificate_if_clients_are_verified(tmp_path):
    with running_grpcs(read_ssl_config(verifying(tmp_path))) as address:
        known = channel_credentials(with_certificate=True)
        assert ask(address, known) == b"over ssl"
        with pytest.raises(grpc.RpcError) as caught:
            ask(address, channel_credentials())
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_authority_of_clients_is_not_asked_for_unless_they_are_verified(tmp_path):
    ca = client_authority().cert_pem.bytes().decode()
    config = read_ssl_config(write_config(tmp_path, custom_ca=ca))
    with running_grpcs(config) as address:
        assert ask(address, channel_credentials()) == b"over ssl"


def test_key_leaves_no_file_behind_and_stays_out_of_the_text(tmp_path, monkeypatch):
    config = read_ssl_config(write_config(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    ssl_context_for_uvicorn(config)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    seen = []
    load = ssl.SSLContext.load_cert_chain

    def load_and_look(context, name):
        seen.append((os.path.dirname(name), os.stat(name).st_mode & 0o777))
        load(context, name)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_and_look)
    ssl_context_for_uvicorn(config)
    assert seen == [(str(tmp_path / "temporary"), 0o600)]
    assert glob.glob(str(tmp_path / "temporary" / "*")) == []
    assert "PRIVATE" not in repr(config)


def test_key_of_another_certificate_is_refused(tmp_path):
    other = key_of(authority().issue_cert("127.0.0.1"))
    with pytest.raises(ValueError, match="must be the key of the first certificate"):
        read_ssl_config(write_config(tmp_path, server_key=other))


@pytest.mark.parametrize(
    ("begin", "end"),
    [(NOW - 20 * DAY, NOW - 10 * DAY), (NOW + 10 * DAY, NOW + 20 * DAY)],
)
def test_certificate_out_of_its_time_is_refused_with_the_dates(tmp_path, begin, end):
    late = authority().issue_cert("127.0.0.1", not_before=begin, not_after=end)
    file = write_config(tmp_path, server_key=key_of(late), server_cert=chain_of(late))
    with pytest.raises(ValueError, match="must be valid now") as caught:
        read_ssl_config(file)
    for moment in (begin, end):
        assert f"{moment:%Y-%m-%d %H:%M:%S}" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"server_key": ""}, "`server_key` in .* must be the PEM text of a private"),
        ({"server_key": "server.key"}, "`server_key` in .* must be the PEM text"),
        ({"server_cert": ""}, "`server_cert` in .* must be the PEM text of one or"),
        ({"server_cert": "server.crt"}, "`server_cert` in .* must be the PEM text"),
        ({"custom_ca": "ca.crt"}, "`custom_ca` in .* must be the PEM text of one"),
        ({"client_verify": True}, "`custom_ca` in .* because `client_verify` is true"),
    ],
)
def test_field_that_cannot_be_used_is_named(tmp_path, changes, rule):
    with pytest.raises(ValueError, match=rule):
        read_ssl_config(write_config(tmp_path, **changes))


def test_key_with_a_password_is_refused_without_asking_for_it(tmp_path):
    key = serialization.load_pem_private_key(
        key_of(server_certificate()).encode(), None
    )
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    with pytest.raises(ValueError, match="a private key without a password"):
        read_ssl_config(write_config(tmp_path, server_key=locked.decode()))


def test_broken_file_is_refused_without_quoting_the_key(tmp_path):
    file = tmp_path / "ssl.config"
    file.write_text("client_verify: true\nserver_key: SecretLineOfTheKey==\n")
    with pytest.raises(ValueError, match=r"SSLConfig.*\(line 2\)") as caught:
        read_ssl_config(file)
    assert "SecretLine" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(FileNotFoundError):
        read_ssl_config(tmp_path / "missing.config")


def test_config_that_all_users_can_read_is_warned_about(tmp_path, caplog):
    read_ssl_config(write_config(tmp_path))
    assert not caplog.records
    read_ssl_config(write_config(tmp_path, mode=0o644))
    (record,) = caplog.records
    assert "all users can read it" in record.getMessage()
