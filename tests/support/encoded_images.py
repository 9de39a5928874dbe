"""Encoded images of all kinds that the exported graph decodes, and views of them."""

import io

import numpy as np
from PIL import Image

from tfdml.images import View

SIZE = 24


def photograph(height=150, width=210):
    """Return an image with smooth areas, edges and noise, as photographs have."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([x * 255 / width, y * 255 / height, (x + y) % 256], axis=2)
    smooth[40:90, 60:150] = [200, 30, 60]
    noisy = smooth + generator.normal(0, 8, smooth.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype("uint8"))


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def cut_out():
    image = photograph().convert("RGBA")
    alpha = Image.linear_gradient("L").resize(image.size)
    image.putalpha(alpha)
    return image


IMAGES = {
    "JPEG": encoded(photograph(), "JPEG", quality=90),
    "progressive JPEG": encoded(photograph(), "JPEG", progressive=True),
    "JPEG without chroma subsampling": encoded(photograph(), "JPEG", subsampling=0),
    "gray JPEG": encoded(photograph().convert("L"), "JPEG"),
    "PNG": encoded(photograph(), "PNG"),
    "gray PNG": encoded(photograph().convert("L"), "PNG"),
    "palette PNG": encoded(photograph().quantize(64), "PNG"),
    "cut-out PNG": encoded(cut_out(), "PNG"),
    "gray cut-out PNG": encoded(cut_out().convert("LA"), "PNG"),
    "PNG smaller than the model": encoded(photograph(11, 17), "PNG"),
    "PNG of the model's size": encoded(photograph(SIZE, SIZE), "PNG"),
    "cut-out WebP": encoded(cut_out(), "WEBP", lossless=True, exact=True),
    "GIF": encoded(photograph().quantize(64), "GIF"),
    "BMP": encoded(photograph(), "BMP"),
    # Of four bytes a pixel the last says nothing: often it is 0.
    "BMP of 32 bits": encoded(cut_out(), "BMP"),
}

VIEWS = {
    "squash": View(SIZE),
    "resize and cut": View(SIZE, resize=32),
    "pad, resize and cut": View(SIZE, resize=29, pad=True),
}
ODD_SHAPES = {
    **{f"{h} x {w}": encoded(photograph(h, w), "PNG") for h, w in [(301, 37), (5, 9)]},
    "a line": encoded(photograph(1, 3000), "PNG"),
    "a column": encoded(photograph(3000, 1), "PNG"),
}
