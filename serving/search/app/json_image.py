"""Read the images in a JSON body, {"image": {"b64": "..."}}, of many megabytes.

They are cut out before the rest is parsed, and decoded piece by piece: in one go,
either would hold the interpreter, and with it all other requests, for a tenth of a
second.
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
_SHORT = 2**10  # characters: such an image, or value of a filter, stays where it is
_MOST_IMAGES = 64  # that are cut out; more are refused for their number


class CutBody(NamedTuple):
    """A JSON body, cut in parts.

    Attributes:
        rest: JSON with a mark in place of each image.
        texts: What was cut out, by the mark in its place, a text that occurs nowhere
            else: base64 as JSON writes it, views of the body.
    """

    rest: bytearray
    texts: dict[str, memoryview]


def cut_body(body: bytearray) -> CutBody | None:
    """Cut the images out of a JSON body that is too long to parse.

    Whether they are images, and not other texts with the name `b64`, is known once the
    rest has been parsed: an image must hold each mark.

    Args:
        body: The body as it was sent.

    Returns:
        Its parts; None if it is short.

    Raises:
        HTTPException: 413, it is too long even without the images.
    """
    if len(body) <= LONGEST_JSON:
        return None
    rest = bytearray()
    texts: dict[str, memoryview] = {}
    view = memoryview(body)
    start = kept = 0
    # The rest of an accepted body is short, so each key is near what was cut last.
    while (start := body.find(_KEY, start, kept + LONGEST_JSON)) >= 0:
        start += len(_KEY)
        found = _TO_TEXT.match(body, start - len(_KEY))
        if found is None:
            continue
        end = body.find(b'"', found.end())
        if end < 0 or len(texts) == _MOST_IMAGES:
            break
        if end - found.end() < _SHORT:
            continue
        mark = secrets.token_hex(16)
        rest += view[kept : found.end()]
        rest += mark.encode()
        texts[mark] = view[found.end() : end]
        start = kept = end
        if len(rest) > LONGEST_JSON:
            raise too_long("The body")
    if len(rest) + len(body) - kept > LONGEST_JSON:
        raise too_long("The body")
    rest += view[kept:]
    return CutBody(rest, texts)


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
