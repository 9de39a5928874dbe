"""Fonts of a few characters, each a pattern of black squares, to draw in a test."""

from pathlib import Path

import numpy as np
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

SIDE = 200  # font units; a character is 4 x 4 squares in an em of 1,000


def pattern(seed):
    """Return 4 x 4 squares of which the corners are black, so that all are as large."""
    squares = np.random.default_rng(seed).integers(0, 2, (4, 4)).astype(bool)
    squares[[0, 0, 3, 3], [0, 3, 0, 3]] = True
    return squares


def write_font(path: Path, characters, missing=None):
    """Write a TrueType font.

    Args:
        path: The file.
        characters: Character -> squares, bool `[rows, columns]`; None is empty.
        missing: Squares of the glyph for a missing character.
    """
    glyphs = {".notdef": missing, **{f"u{ord(c):X}": s for c, s in characters.items()}}
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(list(glyphs))
    builder.setupCharacterMap({ord(c): f"u{ord(c):X}" for c in characters})
    builder.setupGlyf({name: _outline(squares) for name, squares in glyphs.items()})
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 0)))
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": path.stem, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    path.parent.mkdir(parents=True, exist_ok=True)
    builder.save(path)


def _outline(squares):
    pen = TTGlyphPen(None)
    rows, columns = np.nonzero([[]] if squares is None else squares)
    for row, column in zip(rows, columns, strict=True):
        left, bottom = SIDE * int(column), SIDE * (3 - int(row))
        pen.moveTo((left, bottom))
        for corner in ((0, SIDE), (SIDE, SIDE), (SIDE, 0)):
            pen.lineTo((left + corner[0], bottom + corner[1]))
        pen.closePath()
    return pen.glyph()
