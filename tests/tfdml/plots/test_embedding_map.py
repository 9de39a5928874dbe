"""Maps, distributions and galleries: what is drawn is what was given."""

import io
import math
import sys
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager

from tests.support.small_fonts import pattern, write_font
from tfdml._core.fonts import drawable, set_text
from tfdml.figure_style import new_figure
from tfdml.plots import (
    draw_embedding_map,
    embedding_map,
    plot_embedding_map,
    plot_hubness,
    plot_retrieval_gallery,
    plot_similarity_histograms,
)
from tfdml.plots._embedding_map import thin_out

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 255, (40, 6, 9, 3)).astype("uint8")


def saved(figure):
    """Save both kinds of file, where any warning is an error."""
    for kind in ("svg", "png"):
        figure.savefig(io.BytesIO(), format=kind)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def fine_bins(similarities, bins=2**13):
    return np.histogram(similarities, bins, (-1, 1))[0]


def similarity_bins(bins=2**13):
    return -1 + (2 * np.arange(bins) + 1) / bins


def densities(figure):
    return [
        (np.asarray(patch.get_data().values), np.asarray(patch.get_data().edges))
        for patch in figure.axes[0].patches
    ]


@pytest.mark.parametrize("empty_bins", [True, False])
def test_bars_keep_every_pair(empty_bins):
    similarities = [GENERATOR.uniform(-0.2, 1, 500), GENERATOR.uniform(-1, 0.4, 3000)]
    counts = np.stack([fine_bins(values) for values in similarities])
    scores = similarity_bins()
    if not empty_bins:
        found = counts.any(axis=0)
        scores, counts = scores[found], counts[:, found]
    figure = plot_similarity_histograms(scores, *counts)
    for row, (density, edges) in zip(counts, densities(figure), strict=True):
        assert np.sum(density * np.diff(edges)) == pytest.approx(1, rel=1e-9)
        assert 90 <= len(density) <= 110
        expected = [
            sum(n for s, n in zip(scores, row, strict=True) if low < s < high)
            for low, high in pairwise(edges)
        ]
        received = density * np.diff(edges) * row.sum()
        np.testing.assert_allclose(received, expected, atol=1e-6)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["500 positive pairs", "3,000 negative pairs"]
    saved(figure)


def test_coarse_bins_are_drawn_as_they_are():
    scores = np.linspace(-0.95, 0.95, 20)
    counts = np.arange(1, 21)
    wide = plot_similarity_histograms(scores / 2, counts, counts[::-1])
    density, edges = densities(wide)[0]
    np.testing.assert_allclose(edges, np.linspace(-0.5, 0.5, 21), atol=1e-12)
    np.testing.assert_allclose(density, counts / counts.sum() / 0.05)


@pytest.mark.parametrize(
    ("positives", "negatives"),
    [([1, 1], [1, 1]), ([0.9], [0.1]), ([0.1, 0.3], [0.1, 0.30001])],
)
def test_few_or_equal_similarities_are_drawn_within_their_range(positives, negatives):
    counts = [fine_bins(row, 2**21) for row in (positives, negatives)]
    figure = plot_similarity_histograms(similarity_bins(2**21), *counts)
    for density, edges in densities(figure):
        assert edges[-1] <= 1
        assert np.sum(density * np.diff(edges)) == pytest.approx(1, rel=1e-9)
    saved(figure)


def test_one_similarity_is_drawn():
    (density, edges), _ = densities(plot_similarity_histograms([0.5], [3], [1]))
    assert edges == pytest.approx([0.475, 0.525])
    assert density == pytest.approx([20])


def test_threshold_has_a_line_and_its_value_even_outside_of_the_pairs():
    figure = plot_similarity_histograms([0, 0.01], [1, 2], [3, 1], threshold=0.75)
    (axes,) = figure.axes
    assert list(axes.lines[0].get_xdata()) == [0.75, 0.75]
    assert texts(axes) == ["threshold 0.75"]
    assert axes.get_xlim()[1] > 0.75
    saved(figure)
    assert not plot_similarity_histograms([0, 1], [1, 2], [3, 1]).axes[0].lines


def test_occurrences_are_drawn_as_shares_of_items():
    counts = [0] * 5 + [1] * 3 + [2, 9]
    figure = plot_hubness(counts, k=1)
    items, lot = figure.axes[0].lines
    assert items.get_xydata().tolist() == [[0, 0.5], [1, 0.3], [2, 0.1], [9, 0.1]]
    assert lot.get_xdata().tolist() == [0, 1, 2, 3]  # more are rarer than half an item
    # 14 queries have one neighbor each, which by lot is an item with 1 / 10.
    for n, share in lot.get_xydata():
        expected = math.comb(14, int(n)) * 0.1**n * 0.9 ** (14 - n)
        assert share == pytest.approx(expected, rel=1e-9)
    saved(figure)


def test_points_of_large_occurrences_are_means_of_intervals():
    counts = GENERATOR.geometric(0.02, 2000) - 1
    counts[0] += -counts.sum() % 5
    points = plot_hubness(counts, k=5).axes[0].lines[0].get_xydata()
    exact = dict(points[points[:, 0] <= 9].tolist())
    assert exact == {n: np.mean(counts == n) for n in range(10)}
    assert len(points) < 60
    assert points[-1, 0] > 100


def test_share_in_an_interval_is_divided_by_its_width():
    counts = np.repeat([0, 100], 50)
    middle, share = plot_hubness(counts, k=1).axes[0].lines[0].get_xydata()[-1]
    width = 0.5 / share
    assert width == pytest.approx(round(width))
    assert 2 <= round(width) <= 20
    assert abs(middle - 100) <= (width - 1) / 2


def test_figure_of_hubness_says_what_it_measures():
    title = plot_hubness([0, 0, 1, 3], k=1).axes[0].get_title()
    # Mean 1, second and third moment (1 + 1 + 0 + 4) / 4 and (-1 - 1 + 0 + 8) / 4.
    assert f"skewness {1.5 / 1.5**1.5:.2f}" in title
    assert "50.0% anti-hubs" in title
    assert "3 of 4 queries" in title


@pytest.mark.parametrize(
    ("counts", "k"), [([1], 1), ([5, 5, 5], 3), ([0, 0, 7], 1), ([100] * 50, 2)]
)
def test_degenerate_occurrences_are_drawn(counts, k):
    saved(plot_hubness(counts, k))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 40])
@pytest.mark.parametrize("dimension", [1, 3])
def test_map_of_few_items_is_finite(count, dimension):
    pytest.importorskip("sklearn")
    rows = np.random.default_rng(count).normal(size=(count, dimension))
    before = rows.copy()
    places = embedding_map(rows)
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize(
    "rows",
    [np.ones((30, 4)), np.zeros((5, 2)), np.outer(np.arange(1, 9), [1.0, 2.0, 3.0])],
    ids=["equal", "zero", "of one direction"],
)
def test_collapsed_embeddings_are_at_one_place(rows):
    pytest.importorskip("sklearn")
    assert not embedding_map(rows).any()


def test_map_keeps_classes_together_and_repeats_itself():
    pytest.importorskip("sklearn")
    labels = np.arange(60) % 3
    rows = np.eye(3)[labels] + 0.05 * np.random.default_rng(0).normal(size=(60, 3))
    places = embedding_map(rows, seed=3)
    np.testing.assert_array_equal(places, embedding_map(rows, seed=3))
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 1e9 * np.eye(60)
    assert (labels[apart.argmin(axis=1)] == labels).all()


def test_cell_keeps_the_point_nearest_to_its_center():
    places = np.random.default_rng(7).uniform(size=(200, 2)) * [4, 1]
    kept, cells = thin_out(places, across=8)
    low = places.min(axis=0)
    side = np.ptp(places[:, 0]) / 8
    expected = {}
    for item, (x, y) in enumerate(places - low):
        cell = min(int(x / side), 7), min(int(y / side), 7)
        away = math.dist((x, y), ((cell[0] + 0.5) * side, (cell[1] + 0.5) * side))
        expected[cell] = min(expected.get(cell, (9, 0)), (away, item))
    received = dict(zip(map(tuple, cells.tolist()), kept.tolist(), strict=True))
    assert received == {cell: item for cell, (_, item) in expected.items()}
    assert (np.diff(kept) > 0).all()


def test_first_of_equally_near_points_is_kept():
    kept, cells = thin_out(np.zeros((4, 2)), across=3)
    assert (kept.tolist(), cells.tolist()) == ([0], [[0, 0]])


def test_images_stay_in_their_cells_and_none_hides_another():
    places = np.random.default_rng(8).normal(size=(40, 2))
    figure = draw_embedding_map(places, IMAGES)
    (axes,) = figure.axes
    kept, cells = thin_out(places, across=19)  # 3 sqrt(40)
    for image, item, (column, row) in zip(axes.images, kept, cells, strict=True):
        np.testing.assert_array_equal(image.get_array(), IMAGES[item])
        left, right, bottom, top = image.get_extent()
        assert column < left < right < column + 1
        assert row < bottom < top < row + 1
        assert (right - left) / (top - bottom) == pytest.approx(9 / 6)
    assert axes.get_xlabel() == f"{len(kept)} of 40 images drawn"
    saved(figure)


def test_frames_have_the_color_of_the_class_if_classes_are_few():
    places = np.stack([np.arange(9.0), np.zeros(9)], axis=1)
    labels = ["cat", "dog", "_"] * 3
    figure = draw_embedding_map(places, IMAGES[:9], labels)
    colors = [patch.get_edgecolor() for patch in figure.axes[0].patches]
    assert len(set(colors)) == 3
    assert colors == colors[:3] * 3
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["_", "cat", "dog"]
    saved(figure)
    many = draw_embedding_map(places, IMAGES[:9], np.arange(9))
    assert not many.legends
    assert len({patch.get_edgecolor() for patch in many.axes[0].patches}) == 1


@pytest.mark.parametrize("count", [1, 4])
def test_whole_map_is_drawn(count):
    pytest.importorskip("sklearn")
    rows = np.eye(4)[:count]
    figure = plot_embedding_map(rows, IMAGES[:count], seed=1, size=4)
    assert 1 <= len(figure.axes[0].images) <= count
    assert figure.get_size_inches()[0] == 4
    saved(figure)


def hits(*shapes):
    return [
        (
            np.full((*shape, 3), 9, "uint8"),
            f"hit {rank}",
            0.9 - rank / 10,
            rank % 2 == 0,
        )
        for rank, shape in enumerate(shapes)
    ]


def test_gallery_marks_positives_and_negatives_without_color():
    figure = plot_retrieval_gallery([(IMAGES[0], "query 1", hits((4, 4), (4, 4)))])
    (axes,) = figure.axes
    assert texts(axes) == [
        *("query", "rank 1", "2", "query 1"),
        *("✓ 0.900", "hit 0", "✗ 0.800", "hit 1"),
    ]
    positive, negative = axes.patches
    assert positive.get_linestyle() == "solid"
    assert negative.get_linestyle() != "solid"
    assert positive.get_edgecolor() != negative.get_edgecolor()


def test_gallery_keeps_the_order_and_shape_of_images():
    rows = [
        (IMAGES[0], "first", hits((30, 10), (5, 200), (1, 1))),
        (IMAGES[1], "second", []),
        (IMAGES[2], "third", hits((64, 64))),
    ]
    figure = plot_retrieval_gallery(rows)
    given = [x for query, _, found in rows for x in (query, *(hit[0] for hit in found))]
    boxes = []
    for artist, image in zip(figure.axes[0].images, given, strict=True):
        np.testing.assert_array_equal(artist.get_array(), image)
        left, right, bottom, top = artist.get_extent()
        shape = (bottom - top) / (right - left)
        assert shape == pytest.approx(image.shape[0] / image.shape[1])
        boxes.append((left, right, top, bottom))
    assert boxes[0][2] < boxes[4][2] < boxes[5][2]
    assert boxes[0][1] < boxes[1][0] < boxes[2][0] < boxes[3][0]
    saved(figure)


def test_wide_gallery_is_a_page_wide_and_nothing_overlaps():
    long = "a title far too long for its image.jpg"
    row = [(IMAGES[0], long, -0.25, False)] * 8
    figure = plot_retrieval_gallery([(IMAGES[1], long, row)] * 2)
    assert figure.get_size_inches()[0] == pytest.approx(7.5)
    figure.draw_without_rendering()
    captions = [text for text in figure.axes[0].texts if "…" in text.get_text()]
    assert len(captions) == 2 * 9
    boxes = [text.get_window_extent() for text in captions[:9]]
    for left, right in pairwise(boxes):
        assert left.x1 < right.x0
    assert boxes[0].x0 >= 0
    assert boxes[-1].x1 <= figure.bbox.x1
    assert captions[0].get_text().startswith("a ti")
    assert captions[0].get_text().endswith(".jpg")


NAN = np.full((2, 2), np.nan)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_similarity_histograms([], [], []), "`scores` must be one row"),
        (
            lambda: plot_similarity_histograms([1, 0], [1, 1], [1, 1]),
            "`scores` must rise",
        ),
        (
            lambda: plot_similarity_histograms([0, 1], [1], [1, 1]),
            "`positives` must be as l",
        ),
        (
            lambda: plot_similarity_histograms([0, 1], [1, 1], [0, 0]),
            "`negatives` must count",
        ),
        (
            lambda: plot_similarity_histograms([0], [-1], [1]),
            "`positives`.*-1.0 at place 0",
        ),
        (
            lambda: plot_similarity_histograms([np.nan], [1], [1]),
            "`scores` must be finite",
        ),
        (
            lambda: plot_similarity_histograms([0], [1], [1], threshold=np.nan),
            "`threshold` must be finite",
        ),
        (lambda: plot_hubness([], 1), "`occurrences` must be"),
        (lambda: plot_hubness([0, 0], 1), "`occurrences` must sum to Q k"),
        (lambda: plot_hubness([1, 2], 2), "`occurrences` must sum to Q k.*sum 3.*k=2"),
        (lambda: plot_hubness([4, 0], 2), "none may exceed Q.*largest 4"),
        (lambda: plot_hubness([1], 0), "`k` must be a whole number"),
        (lambda: embedding_map(np.zeros(3)), "`embeddings` must have the shape"),
        (
            lambda: embedding_map(np.zeros((0, 3))),
            "`embeddings` must have at least one",
        ),
        (lambda: embedding_map(NAN), "`embeddings` must be finite"),
        (lambda: thin_out(NAN, 3), "`places` must be finite.*row 0"),
        (lambda: thin_out(np.zeros((0, 2)), 3), "`places` must be .*at least one row"),
        (lambda: thin_out(np.zeros((2, 2)), 0), "`across` must be a whole number"),
        (
            lambda: draw_embedding_map(np.zeros((2, 2)), IMAGES),
            r"`thumbnails` must be \[2,",
        ),
        (
            lambda: draw_embedding_map(np.zeros((40, 2)), IMAGES / 255),
            "`thumbnails` must be uint8.*float64",
        ),
        (
            lambda: draw_embedding_map(np.zeros((40, 2)), IMAGES, [1, 2]),
            r"`labels` must have the shape \[40\].*\(2,\)",
        ),
        (
            lambda: draw_embedding_map(np.zeros((40, 2)), IMAGES, size=0),
            "`size` must be",
        ),
        (lambda: plot_retrieval_gallery([]), "`rows` must hold at least one query"),
        (
            lambda: plot_retrieval_gallery([(IMAGES[0] / 255, "", [])]),
            r"`rows\[0\]: query` must be uint8",
        ),
        (
            lambda: plot_retrieval_gallery([(IMAGES[0], "", [(IMAGES, "", 1, True)])]),
            r"`rows\[0\]: hit 1` must be an image.*\(40, 6, 9, 3\)",
        ),
        (
            lambda: plot_retrieval_gallery(
                [(IMAGES[0], "", [(IMAGES[1], "", math.nan, True)])]
            ),
            r"`rows\[0\]: hit 1` must have a finite similarity.*nan",
        ),
    ],
)
def test_wrong_arguments_are_named(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_missing_scikit_learn_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(ImportError, match=r'pip install "tfdml\[evaluation\]"'):
        embedding_map(np.eye(3))


# Fonts

DOG = "\uac15\uc544\uc9c0"  # Korean
SPELLED = r"\uac15\uc544\uc9c0"


@pytest.fixture
def only_dejavu(monkeypatch):
    """matplotlib as where no other font is installed."""
    fonts = [f for f in font_manager.fontManager.ttflist if f.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)


def draw_names(names):
    """Draw names in each place where one may be."""
    image = IMAGES[0]
    gallery = plot_retrieval_gallery([(image, names[0], [(image, names[1], 1, True)])])
    embeddings = draw_embedding_map([[0, 0], [1, 1]], IMAGES[:2], names)
    saved(gallery)
    saved(embeddings)
    below = embeddings.legends[0].get_texts()
    return (
        [texts(gallery.axes[0])[place] for place in (2, 4)],
        [text.get_text() for text in below],
    )


def test_characters_that_no_font_has_are_spelled_without_a_warning(only_dejavu):
    gallery, legend = draw_names([DOG, "\u0434\u043e\u043c"])
    assert legend == ["\u0434\u043e\u043c", SPELLED]  # DejaVu has Cyrillic
    assert gallery[1] == "\u0434\u043e\u043c"
    assert gallery[0].startswith(r"\uac15")
    assert gallery[0].endswith("c0")


def test_names_are_drawn_by_an_installed_font_that_has_them(
    only_dejavu, monkeypatch, tmp_path
):
    file = tmp_path / "NanumGothic.ttf"
    write_font(file, {c: pattern(i) for i, c in enumerate(DOG)})
    font_manager.fontManager.addfont(file)
    assert draw_names([DOG, "cat"]) == ([DOG, "cat"], ["cat", DOG])
    assert drawable(f"{DOG}\u732b") == (
        rf"{DOG}\u732b",
        ["sans-serif", "DejaVu Sans", "NanumGothic"],
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat", "cat"),
        ("a\tb\nc", "a b\nc"),
        ("\u1100\u1161", r"\uac00"),  # as macOS writes names of folders
        ("\U0001f9ff \x07 \udc80", r"\U0001f9ff \x07 \udc80"),
        ("$x$", "$x$"),
    ],
)
def test_text_is_drawn_as_it_is_or_spelled(only_dejavu, text, expected):
    assert drawable(text)[0] == expected
    figure = new_figure(2, 1)
    set_text(figure.text(0.5, 0.5, ""), text)
    assert figure.texts[0].get_text() == expected
    saved(figure)


def test_wide_characters_take_two_places_in_a_legend(only_dejavu, monkeypatch):
    monkeypatch.setattr(
        "tfdml.figure_style.drawable", lambda text: (text, ["DejaVu Sans"])
    )
    figures = {}
    for name in ("\u72ac" * 80, "x" * 160):
        figure = draw_embedding_map([[0, 0]], IMAGES[:1], [name])
        figures[name[0]] = figure.legends[0].get_texts()[0].get_text().count("\n")
    assert figures["\u72ac"] == figures["x"] == 1
