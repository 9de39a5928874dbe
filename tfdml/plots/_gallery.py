"""Draw queries and what a search found for them as rows of images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml._core.fonts import drawable
from tfdml.figure_style import COLORS, new_figure

Hit = tuple[NDArray[np.uint8], str, float, bool]
"""An image, its title, its similarity to the query, and whether it is a positive."""

Row = tuple[NDArray[np.uint8], str, Sequence[Hit]]
"""A query's image and title, and its hits, the nearest first."""

# Inches.
_WIDTH = 7.5  # of a figure, unless its images would be too small or too large
_LEAST, _MOST = 0.66, 1.3  # the longer side of an image
_GAP = 0.12  # between images
_MARGIN = 0.1
_BESIDE_QUERY = 0.2
_HEAD = 0.26
_CAPTION = 0.36

# The ink is the color of the frame, darker for the small print.
_POSITIVE = {"mark": "\u2713", "color": COLORS[2], "ink": "#007A58", "dashes": "solid"}
_NEGATIVE = {
    "mark": "\u2717",
    "color": COLORS[1],
    "ink": "#B34E00",
    "dashes": (0, (3, 1.5)),
}
_MARK_FONT = "DejaVu Sans"  # comes with matplotlib, and has both marks


def plot_retrieval_gallery(rows: Sequence[Row]) -> Any:
    r"""Draw queries and their nearest images, with positives and negatives marked.

    One row per query: its image, then its hits from rank 1 on. A positive has a solid
    green frame and a check mark, a negative a dashed red frame and a cross. Below each
    hit are its similarity and its title. Titles that are too long lose their middle,
    and characters that no font has are spelled as `\uac00`. Images keep their shape.

    Args:
        rows: For each query its image, uint8 `[height, width, 3]` of any size, its
            title, and a list of hits: image, title, similarity, and whether it is a
            positive. Drawn in the given order; rows may have different numbers of hits.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot, as wide and high as the rows need:
        7.5 inches for up to 9 columns. `axes[0].images` are the images, row by row,
        `axes[0].patches` the frames of the hits.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: There is no row, an image is not uint8 `[height, width, 3]`, or a
            similarity is not finite.

    Example:
        >>> cat, dog = np.zeros((2, 8, 8, 3), dtype="uint8")
        >>> hits = [(cat, "cat 2", 0.9, True), (dog, "dog 1", 0.4, False)]
        >>> figure = plot_retrieval_gallery([(cat, "cat 1", hits)])
        >>> [text.get_text() for text in figure.axes[0].texts[4:]]
        ['✓ 0.900', 'cat 2', '✗ 0.400', 'dog 1']
    """
    if not len(rows):
        raise ValueError("`rows` must hold at least one query. Received: none.")
    for place, (query, _, hits) in enumerate(rows):
        _check(f"rows[{place}]: query", query)
        for rank, (image, _, similarity, _) in enumerate(hits, 1):
            _check(f"rows[{place}]: hit {rank}", image)
            if not math.isfinite(similarity):
                raise ValueError(
                    f"`rows[{place}]: hit {rank}` must have a finite similarity. "
                    f"Received: {similarity}."
                )
    most = max(len(hits) for _, _, hits in rows)
    free = _WIDTH - 2 * _MARGIN - _BESIDE_QUERY + _GAP
    side = min(max(free / (most + 1) - _GAP, _LEAST), _MOST)
    pitch, step = side + _GAP, side + _CAPTION
    width = 2 * _MARGIN + _BESIDE_QUERY + (most + 1) * pitch - _GAP
    height = _HEAD + len(rows) * step
    figure = new_figure(width, height, layout=None)
    # One unit of the axes is an inch, from the upper left corner.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    lefts = [_MARGIN + n * pitch + (n > 0) * _BESIDE_QUERY for n in range(most + 1)]
    for rank, left in enumerate(lefts):
        head = "query" if rank == 0 else f"rank {rank}" if rank == 1 else str(rank)
        _write(axes, left + side / 2, _HEAD - 0.06, head, 9, va="bottom")
    for place, (query, title, hits) in enumerate(rows):
        top = _HEAD + place * step
        _show(axes, query, lefts[0], top, side)
        _write_title(axes, lefts[0] + side / 2, top + side + 0.05, title, pitch)
        for left, (image, name, similarity, is_positive) in zip(
            lefts[1:], hits, strict=False
        ):
            look = _POSITIVE if is_positive else _NEGATIVE
            box = _show(axes, image, left, top, side)
            _frame(axes, box, look)
            middle, under = left + side / 2, top + side + 0.05
            text = f"{look['mark']} {similarity:.3f}"
            _write(axes, middle, under, text, 8, color=look["ink"], family=_MARK_FONT)
            _write_title(axes, middle, under + 0.125, name, pitch)
    return figure


def _check(argument: str, image: Any) -> None:
    array = np.asarray(image)
    if array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise ValueError(
            f"`{argument}` must be an image [height, width, 3]. "
            f"Received: shape {array.shape}."
        )
    if array.dtype != np.uint8:
        raise ValueError(f"`{argument}` must be uint8. Received: {array.dtype}.")


def _show(
    axes: Any, image: NDArray[np.uint8], left: float, top: float, side: float
) -> tuple[float, float, float, float]:
    """Draw an image in the middle of a square; return left, top, width, height."""
    from matplotlib.image import AxesImage

    height, width = (side * n / max(image.shape[:2]) for n in image.shape[:2])
    left, top = left + (side - width) / 2, top + (side - height) / 2
    artist = AxesImage(axes, extent=(left, left + width, top + height, top))
    artist.set_data(image)
    axes.add_image(artist)
    return left, top, width, height


def _frame(axes: Any, box: tuple[float, float, float, float], look: Any) -> None:
    from matplotlib.patches import Rectangle

    left, top, width, height = box
    axes.add_patch(
        Rectangle(
            (left, top),
            width,
            height,
            fill=False,
            edgecolor=look["color"],
            linestyle=look["dashes"],
            linewidth=2.2,
        )
    )


def _write(axes: Any, x: float, y: float, text: str, size: float, **look: Any) -> None:
    look = {"va": "top", "ha": "center", "parse_math": False} | look
    axes.text(x, y, text, fontsize=size, **look)


def _write_title(axes: Any, x: float, y: float, title: str, inches: float) -> None:
    shown, families = drawable(" ".join(title.split()))
    _write(axes, x, y, _short(shown, families, inches), 7, family=families)


def _short(title: str, families: list[str], inches: float) -> str:
    """Take letters out of the middle of a title until it fits in 7 points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    kept = short = title
    font = FontProperties(family=families)
    # Text on pixels is a little wider than its outline.
    room = inches * 72 * 0.95 - 5
    while len(kept) > 2:
        width = TextPath((0, 0), short, size=7, prop=font).get_extents().width
        if width <= room:
            break
        length = max(2, min(len(kept) - 1, int(len(kept) * room / width)))
        tail = length // 2
        kept = kept[: length - tail] + kept[len(kept) - tail :]
        short = f"{kept[: length - tail]}\u2026{kept[length - tail :]}"
    return short
