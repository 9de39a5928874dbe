"""Images of random pixels, encoded as PNG."""

import io

import numpy as np
from PIL import Image

from tests.support.search_fixtures import SIZE


def png(pixels, **options):
    """Encode pixels."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", **options)
    return buffer.getvalue()


def random_pixels(seed, height=SIZE, width=SIZE):
    """Draw an image."""
    shape = (height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
