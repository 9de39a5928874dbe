"""Draw single characters with a font, and find those that the font lacks."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageFont

_NEVER_A_CHARACTER = chr(0x10FFFF)  # a font draws its image for "not there"
_HEIGHT = 0.8  # of an image; the ink of a Chinese character is about as high


class GlyphPen:
    """A font that draws characters to square images.

    Args:
        file: The font.
        size: Side of the images in pixels.
        index: Its place in a collection of fonts (`.ttc`).
    """

    def __init__(self, file: Path, size: int, index: int = 0) -> None:
        self._size = size
        self._font = ImageFont.truetype(
            file,
            round(_HEIGHT * size),
            index=index,
            # The same on every system: Raqm may be there or not.
            layout_engine=ImageFont.Layout.BASIC,
        )
        self._missing = self._ink(_NEVER_A_CHARACTER)

    def draw(self, character: str) -> np.ndarray | None:
        """Draw a character in black on white, its ink in the middle.

        Returns:
            uint8 `[size, size]`; None where the font draws nothing, or its image for
            a missing character, whatever its table of characters says.
        """
        ink = self._ink(character)
        if ink is None or (
            self._missing is not None and np.array_equal(ink, self._missing)
        ):
            return None
        size = self._size
        if max(ink.shape) > size:
            image = Image.fromarray(ink)
            image.thumbnail((size, size))
            ink = np.asarray(image)
        height, width = ink.shape
        top, left = (size - height) // 2, (size - width) // 2
        drawn = np.full((size, size), 255, dtype="uint8")
        drawn[top : top + height, left : left + width] -= ink
        return drawn

    def _ink(self, character: str) -> np.ndarray | None:
        """Return the part of the drawing that has ink, 255 where it is black."""
        try:
            mask = self._font.getmask(character, mode="L")
        except OSError:  # FreeType refuses the program of the glyph
            return None
        width, height = mask.size
        ink = np.array(mask, dtype="uint8").reshape(height, width)
        rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            return None
        return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
