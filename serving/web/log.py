"""Write the log of a server: one line per event or request, as text or JSON.

A line holds what the server knows of a request, and of the client's own text only
names and the request id. No image, tensor, header or token is ever logged. Control
characters are escaped, so that no client can write a line of its own.
"""

import json
import logging
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from tfdml.messages import shown

from .status import StatusCode

_ID = re.compile("[A-Za-z0-9._-]{1,128}")
_PLAIN = re.compile(r"[^\s\"\\=]+")
_PLAIN_MESSAGE = re.compile(r"[^\"\\=]+")
_LONGEST_TEXT = 300
_FIELDS = "request_fields"

# What breaks or hides a line in a terminal or a log viewer: control characters, the
# line separators of Unicode, and marks that change the direction of writing.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)

# "serving" in a checkout, "tfdml.serving" where the package is installed.
_SERVING = __name__.removesuffix(".web.log")

_LEVELS = {
    _SERVING: logging.INFO,
    "uvicorn": logging.INFO,
    "uvicorn.error": logging.INFO,
    # Above every level: its lines would repeat each request, with its query.
    "uvicorn.access": logging.CRITICAL + 1,
}

_log = logging.getLogger(f"{_SERVING}.requests")


@dataclass(frozen=True)
class RequestRecord:
    """The fields that are logged of a request.

    Attributes:
        request_id: As `request_id` returned it.
        protocol: "REST" or "GRPC".
        call: What was asked for, such as "predict".
        model: Name in the request, if any.
        version: Version that answered, or that was asked for, if known.
        status: How it ended.
        seconds: From the request to the reply.
        request_bytes: Length of the body or message as it was received.
        peer: Address of the client.
    """

    request_id: str
    protocol: Literal["REST", "GRPC"]
    call: str
    model: str | None
    version: int | None
    status: StatusCode
    seconds: float
    request_bytes: int | None
    peer: str | None


def request_id(given: str | bytes | None) -> str:
    """Return the id of a request, which goes back to the client and into the log.

    Args:
        given: The client's `X-Request-Id` header or metadata, if any.

    Returns:
        What was given if it has 1 to 128 letters, digits, dots, underscores and
        hyphens; else a new id of 32 hexadecimal digits.
    """
    if isinstance(given, bytes):
        given = given.decode("latin-1")
    if given is not None and _ID.fullmatch(given):
        return given
    return uuid.uuid4().hex


def log_request(record: RequestRecord) -> None:
    """Write the line of a request; failures of the server itself as errors."""
    level = logging.ERROR if record.status.is_failure else logging.INFO
    _log.log(level, "request", extra={_FIELDS: record})


def configure(
    log_format: Literal["text", "json"] = "text", stream: TextIO | None = None
) -> None:
    """Bring all loggers of this process into one form. Call it once, at the start.

    uvicorn's own lines and Python's warnings take the same form; uvicorn's access log
    is off, since each request has its line here. uvicorn must not set up logging
    again (`log_config=None`). Of other packages, warnings and errors are let
    through. What TensorFlow's C++ code writes to standard error is not seen by Python.

    Args:
        log_format: "text" for people, "json" for machines: one object per line.
        stream: Where the lines go; standard error by default.

    Raises:
        ValueError: There is no such format.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LogFormatter(log_format))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(level)
    logging.captureWarnings(True)


class LogFormatter(logging.Formatter):
    """Formats a record as one line.

    Args:
        log_format: "text" or "json".

    Raises:
        ValueError: There is no such format.
    """

    def __init__(self, log_format: str) -> None:
        super().__init__()
        if log_format not in ("text", "json"):
            raise ValueError(
                '`log_format` must be "text" or "json". '
                f"Received: log_format={shown(log_format)}."
            )
        self._write = _text_line if log_format == "text" else _json_line

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        time = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "time": f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z",
            "level": record.levelname,
        }
        request = getattr(record, _FIELDS, None)
        if isinstance(request, RequestRecord):
            fields["event"] = "request"
            fields |= _request_fields(request)
        else:
            fields["event"] = record.name
            fields["message"] = record.getMessage()
            if record.exc_info:
                fields["error"] = self.formatException(record.exc_info)
        return self._write(fields)


def _request_fields(record: RequestRecord) -> dict[str, Any]:
    fields = dict(vars(record))
    for name in ("request_id", "call", "model", "peer"):
        if fields[name] is not None and len(fields[name]) > _LONGEST_TEXT:
            fields[name] = f"{fields[name][:_LONGEST_TEXT]}..."
    return fields | {
        "status": record.status.name,
        "seconds": round(record.seconds, 6),
    }


def _json_line(fields: Mapping[str, Any]) -> str:
    # ensure_ascii escapes all that is unsafe, and much that is not.
    return json.dumps(fields)


def _text_line(fields: Mapping[str, Any]) -> str:
    words = [fields["time"], fields["level"], fields["event"]]
    for name, value in fields.items():
        if name == "message":
            words.append(_quoted(value, _PLAIN_MESSAGE))
        elif name not in ("time", "level", "event") and value is not None:
            words.append(f"{name}={_quoted(str(value))}")
    return " ".join(words)


def _quoted(text: str, plain: re.Pattern[str] = _PLAIN) -> str:
    """Quote a text that could be read as several fields."""
    if plain.fullmatch(text) and not _UNSAFE.search(text):
        return text
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{_escape(escaped)}"'


def _escape(text: str) -> str:
    return _UNSAFE.sub(
        lambda found: found[0].encode("unicode_escape").decode("ascii"), text
    )
