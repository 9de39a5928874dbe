"""Lines of the log: their form, and that no client can write one of its own."""

import io
import json
import logging
import re
import warnings

import httpx2
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from serving.web.log import (
    LogFormatter,
    RequestRecord,
    configure,
    log_request,
    request_id,
)
from serving.web.sockets import url_of
from serving.web.status import StatusCode
from tests.support.running_server import running_uvicorn

RECORD = RequestRecord(
    request_id="a1",
    protocol="REST",
    call="predict",
    model="demo",
    version=3,
    status=StatusCode.OK,
    seconds=0.0123456789,
    request_bytes=1234,
    peer="127.0.0.1:5000",
)


@pytest.fixture
def logs():
    """Give a stream for `configure`, and put the loggers back afterwards."""
    names = ["", "serving", "uvicorn", "uvicorn.error", "uvicorn.access"]
    loggers = [logging.getLogger(name or None) for name in names]
    before = [(log, log.handlers[:], log.level, log.propagate) for log in loggers]
    yield io.StringIO()
    logging.captureWarnings(False)
    for logger, handlers, level, propagate in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


def line_of(record, log_format, created=1_700_000_000.0129):
    event = logging.LogRecord("serving.requests", 20, "", 0, "request", (), None)
    event.created = created
    event.request_fields = record
    return LogFormatter(log_format).format(event)


def record_of(**changes):
    return RequestRecord(**{**RECORD.__dict__, **changes})


def fields_of(text_line):
    found = re.findall(r' (\w+)=("(?:[^"\\]|\\.)*"|[^\s"\\=]+)(?= |$)', text_line)
    return {
        name: re.sub(
            r"\\(x..|u....|U........|.)",
            lambda escape: (
                escape[0].encode().decode("unicode_escape")
                if len(escape[1]) > 1 or escape[1] in "nrt"
                else escape[1]
            ),
            value[1:-1] if value.startswith('"') else value,
        )
        for name, value in found
    }


def test_text_line_of_a_request():
    assert line_of(RECORD, "text") == (
        "2023-11-14T22:13:20.012Z INFO request request_id=a1 protocol=REST "
        "call=predict model=demo version=3 status=OK seconds=0.012346 "
        "request_bytes=1234 peer=127.0.0.1:5000"
    )


def test_json_line_of_a_request():
    assert json.loads(line_of(RECORD, "json")) == {
        "time": "2023-11-14T22:13:20.012Z",
        "level": "INFO",
        "event": "request",
        "request_id": "a1",
        "protocol": "REST",
        "call": "predict",
        "model": "demo",
        "version": 3,
        "status": "OK",
        "seconds": 0.012346,
        "request_bytes": 1234,
        "peer": "127.0.0.1:5000",
    }


def test_what_is_not_known_is_null_in_json_and_left_out_of_text():
    record = record_of(model=None, version=None, request_bytes=None, peer=None)
    assert json.loads(line_of(record, "json"))["model"] is None
    assert line_of(record, "text").endswith("call=predict status=OK seconds=0.012346")


@pytest.mark.parametrize("log_format", ["text", "json"])
@given(model=st.text(max_size=60), call=st.text(max_size=60))
def test_text_of_the_client_neither_breaks_the_line_nor_adds_a_field(
    log_format, model, call
):
    line = line_of(record_of(model=model, call=call), log_format)
    assert len(line.splitlines()) == 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", line)
    line.encode()
    fields = json.loads(line) if log_format == "json" else fields_of(line)
    assert fields["model"] == model
    assert fields["call"] == call
    assert fields["status"] == "OK"
    assert len(fields) == 12 - 3 * (log_format == "text")


@pytest.mark.parametrize(
    "character", "\0\n\r\x1b\x7f\x85\u200f\u2028\u2029\u202e\u2066\ufeff"
)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_character_that_breaks_or_hides_a_line_is_escaped(log_format, character):
    event = logging.LogRecord("some", 20, "", 0, f"a{character}b", (), None)
    for line in (
        line_of(record_of(peer=f"a{character}b"), log_format),
        LogFormatter(log_format).format(event),
    ):
        assert character not in line
        assert "a\\" in line


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("Serving version 3 of demo.", "Serving version 3 of demo."),
        ("Bad status=OK", '"Bad status=OK"'),
        ('A "name"', r'"A \"name\""'),
        ("a\nb", r'"a\nb"'),
    ],
)
def test_message_that_could_be_read_as_fields_is_quoted(message, written):
    event = logging.LogRecord("some", 20, "", 0, message, (), None)
    assert LogFormatter("text").format(event).endswith(f" INFO some {written}")


def test_forged_line_stays_inside_its_field():
    forged = 'x" status=OK\n2023-11-14T22:13:20.012Z INFO request model="admin'
    line = line_of(record_of(model=forged, status=StatusCode.NOT_FOUND), "text")
    assert line.count("\n") == 0
    assert fields_of(line)["status"] == "NOT_FOUND"
    assert fields_of(line)["model"] == forged


def test_long_names_are_cut():
    line = line_of(record_of(model="m" * 10_000), "json")
    assert json.loads(line)["model"] == "m" * 300 + "..."


@pytest.mark.parametrize("given_id", ["a", "Trace-1_2.3", "x" * 128])
def test_fitting_request_id_of_the_client_is_kept(given_id):
    assert request_id(given_id) == given_id
    assert request_id(given_id.encode()) == given_id


@pytest.mark.parametrize(
    "given_id", [None, "", "x" * 129, "a b", "a\n", "ä", "a/b", b"\xff", '"']
)
def test_other_request_ids_are_replaced_by_new_ones(given_id):
    new = {request_id(given_id) for _ in range(10)}
    assert len(new) == 10
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in new)


@pytest.mark.parametrize(
    ("status", "level"),
    [
        (StatusCode.OK, "INFO"),
        (StatusCode.INVALID_ARGUMENT, "INFO"),
        (StatusCode.UNAVAILABLE, "INFO"),
        (StatusCode.INTERNAL, "ERROR"),
    ],
)
def test_only_failures_of_the_server_are_errors(logs, status, level):
    configure("json", logs)
    log_request(record_of(status=status))
    (line,) = logs.getvalue().splitlines()
    assert json.loads(line)["level"] == level
    assert json.loads(line)["status"] == status.name


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_exception_takes_one_line(logs, log_format):
    configure(log_format, logs)
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError:
        logging.getLogger("serving.endpoint.run").exception("A request\nfailed.")
    (line,) = logs.getvalue().splitlines()
    assert "RuntimeError: first\\nsecond" in line
    assert "A request\\nfailed." in line


def test_other_packages_and_warnings_take_the_same_form(logs):
    configure("json", logs)
    logging.getLogger("some.package").info("not seen")
    logging.getLogger("some.package").warning("seen %d times", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    seen, warned = map(json.loads, logs.getvalue().splitlines())
    assert (seen["event"], seen["message"]) == ("some.package", "seen 1 times")
    assert seen["level"] == "WARNING"
    assert "DeprecationWarning: old" in warned["message"]


def test_configuring_twice_does_not_log_twice(logs):
    configure("text", logs)
    configure("text", logs)
    log_request(RECORD)
    assert len(logs.getvalue().splitlines()) == 1


def test_handlers_that_uvicorn_made_for_itself_are_gone(logs):
    own = io.StringIO()
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(own))
    logging.getLogger("uvicorn").propagate = False
    configure("text", logs)
    logging.getLogger("uvicorn.error").info("started")
    assert own.getvalue() == ""
    assert logs.getvalue().endswith("INFO uvicorn.error started\n")


def test_a_running_server_logs_in_one_form_and_each_request_once(logs):
    configure("json", logs)

    def answer(request):
        log_request(record_of(request_id=request_id(request.headers["x-request-id"])))
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/", answer)])
    config = uvicorn.Config(app, log_config=None, ws="none")
    with running_uvicorn(config) as listener:
        url = url_of(listener)
        headers = {"x-request-id": "mine", "authorization": "Bearer hidden-token"}
        httpx2.get(f"{url}/?hidden-query", headers=headers, timeout=60)
    lines = [json.loads(line) for line in logs.getvalue().splitlines()]
    assert {"time", "level", "event"} <= set.intersection(*map(set, lines))
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["request_id"] for line in requests] == ["mine"]
    assert any(line["event"] == "uvicorn.error" for line in lines), lines
    assert "hidden" not in logs.getvalue()


def test_unknown_format_is_refused(logs):
    with pytest.raises(ValueError, match="`log_format` must be"):
        configure("xml", logs)
