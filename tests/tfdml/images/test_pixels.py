"""That images are converted piece by piece as they would be as a whole."""

import numpy as np
import pytest
from PIL import Image

from tfdml.images import _pixels


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("pixels", [1, 7, 64, 10_000])
def test_conversion_in_strips_is_that_of_the_whole_image(mode, pixels, monkeypatch):
    drawn = np.random.default_rng(0).integers(0, 256, (37, 21, 4), np.uint8)
    image = Image.fromarray(drawn, "RGBA")
    image = image.convert("RGB").convert(mode) if mode != "LA" else image.convert(mode)
    if mode == "P":
        image.info["transparency"] = 3
    canvas = Image.new("RGBA", image.size, (9, 80, 200, 255))
    canvas.alpha_composite(image.convert("RGBA"))
    whole = (canvas if image.has_transparency_data else image).convert("RGB")
    monkeypatch.setattr(_pixels, "_STRIP", pixels)
    np.testing.assert_array_equal(_pixels.to_rgb(image, (9, 80, 200)), np.array(whole))
