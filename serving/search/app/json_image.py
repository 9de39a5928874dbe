"""Read the image in a JSON body, {"image": {"b64": "..."}}, of many megabytes.

It is cut out before the rest is parsed, and decoded piece by piece: in one go, either
would hold the interpreter, and with it all other requests, for a tenth of a second.
"""

import binascii
import json
import re
import secrets
from typing import NamedTuple

from .strict_json import LONGEST_JSON, too_long

_KEY = b'"b64"'
_TO_TEXT = re.compile(rb'"b64"[ \t\r\n]*:[ \t\r\n]*"')
_PIECE = 2**16  # characters, which take a millisecond at most
_LONGEST_ESCAPE = 6  # of \u002b, for +


class CutBody(NamedTuple):
    """A JSON body, cut in two.

    Attributes:
        rest: JSON with `mark` in place of the image.
        mark: A text that occurs nowhere else in it.
        text: What was cut out, base64 as JSON writes it: a view of the body.
    """

    rest: bytearray
    mark: str
    text: memoryview


def cut_body(body: bytearray) -> CutBody | None:
    """Cut the image out of a JSON body that is too long to parse.

    Whether it is the image, and not another text with the name `b64`, is known once the
    rest has been parsed: `image` must hold the mark.

    Args:
        body: The body as it was sent.

    Returns:
        Its parts; None if it is short.

    Raises:
        HTTPException: 413, it is too long even without the image.
    """
    if len(body) <= LONGEST_JSON:
        return None
    start = 0
    # The rest of an accepted body is short, so the key is near its beginning.
    while (start := body.find(_KEY, start, LONGEST_JSON)) >= 0:
        if found := _TO_TEXT.match(body, start):
            end = body.find(b'"', found.end())
            if end >= 0 and found.end() + len(body) - end <= LONGEST_JSON:
                mark = secrets.token_hex(16)
                rest = body[: found.end()] + mark.encode() + body[end:]
                return CutBody(rest, mark, memoryview(body)[found.end() : end])
        start += len(_KEY)
    raise too_long("The body")


def decoded(text: bytes | memoryview) -> bytes:
    """Decode base64 from JSON.

    Args:
        text: Without the quotes around it; it may have escapes.

    Raises:
        ValueError: It is not base64 with its padding and nothing else.
    """
    found = []
    left = b""
    start = 0
    while start < len(text):
        piece = _piece(text, start)
        start += len(piece)
        if b"\\" in piece:
            piece = json.loads(b'"' + piece + b'"').encode("ascii")
        piece = left + piece
        whole = len(piece) if start == len(text) else len(piece) // 4 * 4
        found.append(binascii.a2b_base64(piece[:whole], strict_mode=True))
        left = piece[whole:]
        if start < len(text) and piece[:whole].endswith(b"="):
            raise ValueError("something follows the padding")
    return b"".join(found)


def _piece(text: bytes | memoryview, start: int) -> bytes:
    """Return the next piece, which does not end within an escape."""
    piece = bytes(text[start : start + _PIECE])
    if start + len(piece) == len(text):
        return piece
    # Base64 has no escaped backslash, so each backslash begins an escape.
    escape = piece.rfind(b"\\", -_LONGEST_ESCAPE)
    return piece if escape < 0 else piece[:escape]
