"""Images, and the bodies and answers of requests with them."""

import base64
import io

import numpy as np
from PIL import Image

BAD = {
    "no image": b"no image",
    "nothing": b"",
    "cut short": b"\x89PNG\r\n\x1a\n\0\0",
}


def encoded(pixels):
    """Encode uint8 `[height, width, 3]` as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def b64(data):
    return {"b64": base64.b64encode(data).decode()}


def predict(rest, path, document, **options):
    return rest.post(f"{path}:predict", json=document, **options)


def rows_of(response, key="predictions"):
    """The rows of a good answer, which has this key alone."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/json")
    document = response.json()
    assert list(document) == [key]
    return np.array(document[key], np.float32)


def says(target, text, wanted):
    """Whether a refusal has the wanted text; another server may add to it."""
    return text == wanted if target.is_own else wanted in text


def error_of(response, *statuses):
    """The text of a refusal with one of these statuses."""
    assert response.status_code in statuses, response.text
    assert response.headers["content-type"].startswith("application/json")
    document = response.json()
    assert list(document) == ["error"]
    assert isinstance(document["error"], str)
    assert document["error"]
    return document["error"]
