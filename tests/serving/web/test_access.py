"""Bearer tokens from a file, over REST and gRPC on real sockets."""

import concurrent.futures
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from serving.web.access import TokenAccess
from serving.web.status import StatusCode, StatusError
from tests.support.running_server import running
from tests.support.token_files import write_tokens

FIRST = "first-token-0123456789"
SECOND = "c2Vjb25kIHRva2VuISEhIQ=="


@pytest.fixture
def file(tmp_path):
    return write_tokens(
        tmp_path / "tokens", f"# of the tests\n\n{FIRST}\r\n  {SECOND}  \n"
    )


def refusal(access, header):
    with pytest.raises(StatusError) as caught:
        access.check(header)
    assert caught.value.code == StatusCode.UNAUTHENTICATED
    return caught.value.message


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer {FIRST}",
        f"Bearer {SECOND}",
        f"bearer {FIRST}",
        f"BEARER   {FIRST} ",
    ],
)
def test_tokens_of_the_file_are_let_in(file, header):
    TokenAccess(file).check(header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        FIRST,
        f"Basic {FIRST}",
        f"Bearer{FIRST}",
        f"Bearer {FIRST} {SECOND}",
        f"Bearer {FIRST}\n",
    ],
)
def test_request_without_a_token_is_told_what_is_missing(file, header):
    message = refusal(TokenAccess(file), header)
    assert message == "This server needs the header `Authorization: Bearer TOKEN`."


@pytest.mark.parametrize(
    "token",
    [
        FIRST[:-1],
        f"{FIRST}x",
        FIRST.upper(),
        "#",
        "of",
        "\udcff" * 20,
        "ünïcode-token-0123456789",
        "x" * 100_000,
    ],
)
def test_other_tokens_are_refused_and_not_repeated(file, token):
    message = refusal(TokenAccess(file), f"Bearer {token}")
    assert message == "The bearer token is not valid here."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{FIRST}\nshort-secret\n", 2),
        (f"# comment\n\n{FIRST} # whose\n", 3),
        ("ünïcode-token-0123456789\n", 1),
        ("=equals-before-the-end\n", 1),
        ('quote"-token-0123456789\n', 1),
    ],
)
def test_line_that_is_no_token_is_named_by_its_number_only(tmp_path, text, line):
    file = write_tokens(tmp_path / "tokens", text)
    with pytest.raises(ValueError, match=f"Line {line} of .*at least 16") as caught:
        TokenAccess(file)
    for secret in ("short-secret", FIRST, "quote", "code-token", "equals"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", f"# {FIRST}\n"])
def test_file_without_a_token_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="must have at least one token"):
        TokenAccess(write_tokens(tmp_path / "tokens", text))


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        TokenAccess(tmp_path / "tokens")


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o622, 0o602])
def test_file_that_is_open_to_others_is_refused(file, mode):
    file.chmod(mode)
    with pytest.raises(ValueError, match=f"chmod 600.*mode is {mode:04o}"):
        TokenAccess(file)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_file_of_owner_and_group_is_read(file, mode):
    file.chmod(mode)
    TokenAccess(file).check(f"Bearer {FIRST}")


def test_tokens_are_rotated_without_a_restart(file, caplog):
    access = TokenAccess(file)
    access.check(f"Bearer {FIRST}")
    new = "third-token-0123456789"
    with caplog.at_level(logging.INFO, "serving.web.access"):
        write_tokens(file, f"{new}\n")
        access.check(f"Bearer {new}")
    refusal(access, f"Bearer {FIRST}")
    assert "Read 1 tokens from" in caplog.text
    assert new not in caplog.text


def test_rotation_is_seen_through_a_link_as_kubernetes_does_it(tmp_path):
    for folder, token in (("one", FIRST), ("two", SECOND)):
        (tmp_path / folder).mkdir()
        write_tokens(tmp_path / folder / "tokens", token)
    link = tmp_path / "current"
    link.symlink_to("one")
    access = TokenAccess(link / "tokens")
    (tmp_path / "next").symlink_to("two")
    os.replace(tmp_path / "next", link)
    access.check(f"Bearer {SECOND}")
    refusal(access, f"Bearer {FIRST}")


@pytest.mark.parametrize(
    ("text", "mode"), [("", 0o600), ("short\n", 0o600), (SECOND * 2, 0o644)]
)
def test_broken_new_file_keeps_the_old_tokens_and_is_logged_once(
    file, caplog, text, mode
):
    access = TokenAccess(file)
    write_tokens(file, text, mode)
    for _ in range(3):
        access.check(f"Bearer {FIRST}")
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "The tokens read before stay valid" in record.getMessage()
    new = "mended-token-0123456789"
    write_tokens(file, new)
    access.check(f"Bearer {new}")
    refusal(access, f"Bearer {FIRST}")


def test_missing_new_file_keeps_the_old_tokens(file, caplog):
    access = TokenAccess(file)
    file.unlink()
    for _ in range(3):
        access.check(f"Bearer {FIRST}")
        refusal(access, "Bearer wrong-token-0123456789")
    assert len(caplog.records) == 1


def test_no_request_is_refused_while_tokens_are_added(file):
    access = TokenAccess(file)
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            access.check(f"Bearer {FIRST}")
        access.check(f"Bearer {FIRST}")

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        for number in range(50):
            write_tokens(file, f"{FIRST}\nnumber-{number:020d}\n")
        stop.set()
        for future in concurrent.futures.as_completed(asking):
            future.result()


def test_rest_requests_need_a_token(file):
    access = TokenAccess(file)

    def answer(request):
        try:
            access.check(request.headers.get("authorization"))
        except StatusError as error:
            return PlainTextResponse(error.message, 401)
        return PlainTextResponse("in")

    with running(Starlette(routes=[Route("/", answer)])) as url:
        assert httpx2.get(url, timeout=60).status_code == 401
        wrong = httpx2.get(
            url, headers={"Authorization": f"Bearer {FIRST}x"}, timeout=60
        )
        assert wrong.status_code == 401
        right = httpx2.get(
            url, headers={"Authorization": f"Bearer {FIRST}"}, timeout=60
        )
        assert right.text == "in"


def test_grpc_calls_need_a_token(file):
    access = TokenAccess(file)

    def answer(request, context):
        metadata = dict(context.invocation_metadata())
        try:
            access.check(metadata.get("authorization"))
        except StatusError as error:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)
        return b"in"

    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {"Ask": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("test.Service", handlers)]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask = channel.unary_unary("/test.Service/Ask")
            with pytest.raises(grpc.RpcError) as caught:
                ask(b"", timeout=60)
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            metadata = [("authorization", f"Bearer {FIRST}")]
            assert ask(b"", metadata=metadata, timeout=60) == b"in"
    finally:
        server.stop(None).wait()
