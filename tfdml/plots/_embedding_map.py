"""Draw a map of embeddings: images laid out by t-SNE."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import above_zero, whole
from tfdml._core.embeddings import as_embeddings, unit_or_zero
from tfdml.figure_style import COLORS, legend_below, new_figure
from tfdml.messages import shown

_CELL = 0.28  # inches, the least side of an image: 34 pixels
_WIDEST = 1.2  # inches, so that a lone image does not fill the page
_FILLED = 0.92  # of a cell by an image
_SAME = 1e-6  # in each coordinate of unit vectors: rounding of float32


def plot_embedding_map(
    embeddings: ArrayLike,
    thumbnails: NDArray[np.uint8],
    labels: ArrayLike | None = None,
    *,
    seed: int = 0,
    size: float = 7.5,
) -> Any:
    """Draw images where t-SNE puts their embeddings, similar ones near each other.

    This is `draw_embedding_map` of `embedding_map`. t-SNE shows which images are close;
    sizes of clusters and distances between them mean nothing.

    Args:
        embeddings: Float array `[N, D]`.
        thumbnails: uint8 `[N, height, width, 3]`.
        labels: `[N]`, integers or strings. Default: no frames.
        seed: Seed of the layout, default 0.
        size: Width of the map in inches, default 7.5. A wider one shows more images.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot.

    Raises:
        ImportError: matplotlib or scikit-learn is not installed.
        ValueError: The shapes do not fit, there is no row, or a number is not finite.

    Example:
        >>> images = np.zeros((3, 8, 8, 3), dtype="uint8")
        >>> figure = plot_embedding_map(np.eye(3), images, ["cat", "dog", "dog"])
        >>> len(figure.axes[0].images)
        3

    Reference:
        Lu, Xu, Zhang, Duan and Mei, Sampling Wisely: Deep Image Embedding by Top-k
        Precision Optimization, ICCV 2019, figure 6.
    """
    return draw_embedding_map(
        embedding_map(embeddings, seed), thumbnails, labels, size=size
    )


def embedding_map(embeddings: ArrayLike, seed: int = 0) -> NDArray[np.float32]:
    """Place embeddings on a plane by t-SNE of their cosine distances.

    The perplexity is min(30, (N - 1) / 3), but at least 1; the layout begins with the
    first two principal components of the unit vectors. A zero vector is at distance 1
    from all others. If all vectors have the same direction, there is nothing to lay
    out: all are at (0, 0). It uses one thread, so that the same seed gives the same map
    whatever the number of cores.

    Args:
        embeddings: Float array `[N, D]`, finite, N at least 1. 3,000 take about 11
            seconds.
        seed: Seed of the principal components' solver.

    Returns:
        float32 `[N, 2]`.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The shape is wrong, there is no row, or a number is not finite.

    Example:
        >>> embedding_map([[1.0, 0.0], [2.0, 0.0]]).tolist()
        [[0.0, 0.0], [0.0, 0.0]]

    Reference:
        van der Maaten and Hinton, Visualizing Data using t-SNE, JMLR 2008. As in
        scikit-learn, the Gaussian takes the square of the cosine distance.
    """
    rows = as_embeddings("embeddings", embeddings, unit=False)
    if not len(rows):
        raise ValueError("`embeddings` must have at least one row. Received: none.")
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise ImportError(
            'A map of embeddings needs scikit-learn: pip install "tfdml[evaluation]".'
        ) from error
    unit = unit_or_zero(rows)
    if np.ptp(unit, axis=0).max() < _SAME:
        return np.zeros((len(rows), 2), dtype="float32")
    if unit.shape[1] == 1:
        unit = np.pad(unit, ((0, 0), (0, 1)))  # there are two principal components
    layout = TSNE(
        metric="cosine",
        init="pca",
        perplexity=max(1.0, min(30.0, (len(unit) - 1) / 3)),
        random_state=seed,
    )
    with threadpool_limits(1):
        return np.asarray(layout.fit_transform(unit), dtype="float32")


def thin_out(
    places: ArrayLike, across: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Snap points to the cells of a grid, and keep one point in each.

    The grid spans the points with square cells, `across` of them along the longer side.
    A cell keeps the point nearest to its center, and of equally near ones the first.

    Args:
        places: Float array `[N, 2]`, finite, at least one row: x and y.
        across: Cells along the longer side, at least 1.

    Returns:
        The points kept, int64 `[M]` in rising order, and the column and the row of
        their cells, int64 `[M, 2]` from 0, rows counted in the direction of y.

    Raises:
        ValueError: The shape is wrong, there is no point, a number is not finite, or
            `across` is below 1.

    Example:
        >>> kept, cells = thin_out([[0, 0], [0.4, 0.4], [2, 1]], across=2)
        >>> kept.tolist(), cells.tolist()
        ([1, 2], [[0, 0], [1, 1]])
    """
    across = whole("across", across)
    points = np.asarray(places, dtype="float64")
    if points.ndim != 2 or points.shape[1] != 2 or not points.size:
        raise ValueError(
            "`places` must be [N, 2], at least one row. "
            f"Received: shape {points.shape}."
        )
    if not np.isfinite(points).all():
        row = int(np.argwhere(~np.isfinite(points))[0][0])
        raise ValueError(
            f"`places` must be finite. Received: {shown(points[row].tolist())} in row "
            f"{row}."
        )
    points = points - points.min(axis=0)
    side = points.max() / across
    # Points on the far edge belong to the last cell.
    grid = np.minimum(points // side, across - 1) if side else np.zeros_like(points)
    away = np.square(points - (grid + 0.5) * side).sum(axis=1)
    order = np.lexsort((away, grid[:, 0], grid[:, 1]))  # keeps the order of equals
    _, first = np.unique(grid[order], axis=0, return_index=True)
    kept = np.sort(order[first])
    return kept, grid[kept].astype("int64")


def draw_embedding_map(
    places: ArrayLike,
    thumbnails: NDArray[np.uint8],
    labels: ArrayLike | None = None,
    *,
    size: float = 7.5,
) -> Any:
    """Draw images at their places, thinned out so that none hides another.

    `thin_out` chooses: each image is drawn in its cell of a grid, less than half a cell
    from its place in either direction; if several fall into a cell, only the one
    nearest to the center of the cell is drawn. The grid has 3 sqrt(N) cells along its
    longer side, but at least 3, and no more than leave an image 0.28 inches; a line
    below the map says how many images are drawn. With up to 8 classes an image has a
    frame in the color of its class; more colors could not be distinguished.

    Args:
        places: Float array `[N, 2]`, finite, as `embedding_map` returns.
        thumbnails: uint8 `[N, height, width, 3]`.
        labels: `[N]`, integers or strings. Default: no frames.
        size: Width of the map in inches, above 0, default 7.5.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].images` are the images
        drawn, in the order of the rows, `axes[0].patches` their frames.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The shapes do not fit, there is no row, or a number is not finite.

    Example:
        >>> images = np.zeros((3, 8, 8, 3), dtype="uint8")
        >>> figure = draw_embedding_map([[0, 0], [0, 0], [1, 1]], images)
        >>> len(figure.axes[0].images)
        2
    """
    size = above_zero("size", size)
    images, count = np.asarray(thumbnails), len(np.asarray(places))
    if images.shape != (count, *images.shape[1:3], 3) or not images.size:
        raise ValueError(
            f"`thumbnails` must be [{count}, height, width, 3], one for each place. "
            f"Received: shape {images.shape}."
        )
    if images.dtype != np.uint8:
        raise ValueError(f"`thumbnails` must be uint8. Received: {images.dtype}.")
    classes, colors = _colors(labels, count)
    across = max(1, min(int(size / _CELL), max(3, round(3 * math.sqrt(count)))))
    kept, cells = thin_out(places, across)
    columns, rows = (int(n) for n in cells.max(axis=0) + 1)
    side = min(size / max(columns, rows), _WIDEST)
    figure = new_figure(size, rows * side + 0.3)
    axes = figure.subplots()
    from matplotlib.image import AxesImage
    from matplotlib.patches import Rectangle

    height, width = images.shape[1:3] / np.max(images.shape[1:3]) * _FILLED
    for item, (column, row) in zip(kept, cells, strict=True):
        x, y = column + (1 - width) / 2, row + (1 - height) / 2
        artist = AxesImage(axes, extent=(x, x + width, y, y + height))
        artist.set_data(images[item])
        axes.add_image(artist)
        look: dict[str, Any] = (
            {"edgecolor": "#B0B0B0", "linewidth": 0.4}
            if colors is None
            else {"edgecolor": colors[item], "linewidth": 1.8}
        )
        axes.add_patch(Rectangle((x, y), width, height, fill=False, **look))
    axes.set(xlim=(0, columns), ylim=(0, rows), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_xlabel(f"{len(kept):,} of {count:,} images drawn", fontsize=9)
    if colors is not None:
        handles = [Rectangle((0, 0), 1, 1, color=color) for color in COLORS]
        legend_below(figure, handles[: len(classes)], classes)
    return figure


def _colors(labels: ArrayLike | None, count: int) -> tuple[list[str], list[str] | None]:
    """Return the names of the classes and the color of each item, if they are few."""
    if labels is None:
        return [], None
    values = np.asarray(labels)
    if values.shape != (count,):
        raise ValueError(
            f"`labels` must have the shape [{count}]. Received: {values.shape}."
        )
    classes, codes = np.unique(values, return_inverse=True)
    if len(classes) > len(COLORS):
        return [], None
    return [str(name) for name in classes], [COLORS[code] for code in codes]
