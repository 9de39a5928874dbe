"""Curves of retrieval and of training: what is drawn is what was measured."""

import io
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("matplotlib")

from tfdml.figure_style import save_small
from tfdml.plots import (
    plot_convergence,
    plot_precision_recall,
    plot_recall_at_k,
    plot_roc,
    plot_training,
)

NAMES = [
    "top-k",
    "a name of many words, " * 8,
    "_hidden",
    "$x$_$y$",
    "a",
    "b",
    "c",
    "d",
]


def saved(figure):
    """Save both kinds of file, where any warning is an error; return the SVG."""
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg")
    figure.savefig(png, format="png")
    assert png.getvalue().startswith(b"\x89PNG")
    return svg.getvalue().decode()


def lines(figure, axes=0):
    return [line.get_xydata().tolist() for line in figure.axes[axes].lines]


def random_ranks(queries=30):
    return np.random.default_rng(1).geometric(0.02, queries)


def test_recall_is_the_share_of_first_ranks_up_to_k():
    runs = {"one": random_ranks(), "two": random_ranks(7)}
    figure = plot_recall_at_k(runs, most=50)
    for ranks, points in zip(runs.values(), lines(figure), strict=True):
        assert [k for k, _ in points] == list(range(1, 51))
        for k, recall in points:
            assert recall == sum(rank <= k for rank in ranks) / len(ranks)


def test_long_axis_of_k_is_sampled_at_whole_k():
    ranks = np.random.default_rng(2).integers(1, 10**6, 1000)
    (points,) = lines(plot_recall_at_k({"run": ranks}, most=10**5))
    ks = [k for k, _ in points]
    assert ks[:20] == list(range(1, 21))
    assert ks[-1] == 10**5
    assert len(ks) <= 500
    assert all(recall == np.mean(ranks <= k) for k, recall in points)


def test_axis_of_k_ends_where_every_query_has_its_positive():
    figure = plot_recall_at_k({"one": [1, 2], "two": [37, 1]})
    assert figure.axes[0].get_xlim() == (1, 37)
    perfect = plot_recall_at_k({"one": [1, 1]})
    assert perfect.axes[0].get_xlim() == (1, 10)
    assert perfect.axes[0].get_ylim()[1] == 1


def test_precision_is_drawn_as_given():
    curves = {"one": ([0, 0.5, 1], [1, 0.8, 0.1]), "two": ([0, 1], [1, 1])}
    figure = plot_precision_recall(curves)
    expected = [np.transpose(curve).tolist() for curve in curves.values()]
    assert lines(figure) == expected


def test_roc_is_the_rate_of_the_lowest_threshold_that_is_allowed():
    generator = np.random.default_rng(4)
    positives, negatives = generator.normal(1, 1, 40), generator.normal(0, 1, 60)
    thresholds = np.sort(np.r_[positives, negatives, np.inf])[::-1]
    rates = [
        [np.mean(scores >= t) for t in thresholds] for scores in (negatives, positives)
    ]
    points = lines(plot_roc({"run": rates}))[0]
    assert points[0][0] == pytest.approx(1 / 60)
    for x, y in points:
        # Best true positive rate of all thresholds that keep within x.
        within = [t for t in thresholds if np.mean(negatives >= t) <= x]
        assert y == max(np.mean(positives >= t) for t in within)


def test_many_points_of_a_roc_are_sampled():
    fpr = np.linspace(0, 1, 100_001)
    points = lines(plot_roc({"run": (fpr, np.sqrt(fpr))}))[0]
    assert len(points) == 500
    assert (points[0][0], points[-1]) == (pytest.approx(1e-5), [1, 1])
    for x, y in points:
        # A step of the rates is 1e-5, and the curve lies below that step's end.
        assert np.sqrt(max(x - 1.001e-5, 0)) <= y <= np.sqrt(x)


@pytest.mark.parametrize(
    ("fpr", "start"),
    [
        ([0, 1e-9, 1], 1e-6),
        ([0, 0.004, 1], 0.004),
        ([0, 0.5, 1], 0.1),
        ([0, 0, 1], 0.1),
    ],
)
def test_roc_begins_at_the_smallest_rate_within_limits(fpr, start):
    figure = plot_roc({"run": (fpr, [0.2, 0.4, 1])})
    assert figure.axes[0].get_xlim() == (pytest.approx(start), 1)


def test_perfect_roc_is_1_from_the_left_edge():
    assert lines(plot_roc({"run": ([0, 0, 1], [0, 1, 1])}))[0] == [[0.1, 1], [1, 1]]


def training(epochs=3, runs=2):
    names = NAMES[:runs]
    values = {
        name: np.linspace(0.1 * place, 0.9, epochs) for place, name in enumerate(names)
    }
    x = {name: 100 * np.arange(1, epochs + 1) for name in names}
    return values, x


def draw_training(values, x):
    histories = {name: {"loss": [0.0], "recall": row} for name, row in values.items()}
    return plot_training(histories, x, metric="recall", x_label="iterations")


@pytest.mark.parametrize("epochs", [1, 3, 300])
def test_training_draws_the_metric_against_x(epochs):
    values, x = training(epochs)
    figure = draw_training(values, x)
    expected = [np.transpose([x[name], values[name]]).tolist() for name in values]
    assert lines(figure) == expected
    assert figure.axes[0].get_xscale() == "linear"
    saved(figure)


@pytest.mark.parametrize(
    ("first", "second", "scale"),
    [
        ([1e3, 2e3, 3e3], [1e6, 2e6, 3e6], "log"),
        ([0, 1e3, 2e3], [0, 1e6, 2e6], "symlog"),
        ([10, 1e3, 1e5], [10, 1e3, 1e5], "log"),
        ([1e3, 2e3, 3e3], [2e3, 4e3, 6e3], "linear"),
        ([0, 0, 0], [0, 0, 0], "linear"),
    ],
)
def test_axis_is_logarithmic_where_a_run_would_be_crowded(first, second, scale):
    values, _ = training()
    figure = draw_training(values, dict(zip(values, (first, second), strict=True)))
    assert figure.axes[0].get_xscale() == scale
    saved(figure)


def test_convergence_draws_both_costs_with_one_axis_of_values():
    values, iterations = training()
    triplets = {
        name: row * 10.0 ** (5 * i) for i, (name, row) in enumerate(iterations.items())
    }
    figure = plot_convergence(values, iterations, triplets, metric="Recall@1")
    for place, x in enumerate((iterations, triplets)):
        expected = [np.transpose([x[name], values[name]]).tolist() for name in values]
        assert lines(figure, place) == expected
    left, right = figure.axes
    assert left.get_ylim() == right.get_ylim()
    assert (left.get_xscale(), right.get_xscale()) == ("linear", "log")
    saved(figure)


def drawings(runs):
    names = NAMES[:runs]
    values, x = training(runs=runs)
    return {
        "recall": plot_recall_at_k({name: random_ranks() for name in names}),
        "precision": plot_precision_recall({n: ([0, 1], [1, 0.1]) for n in names}),
        "roc": plot_roc({n: ([0, 0.001, 1], [0.2, 0.5, 1]) for n in names}),
        "training": draw_training(values, x),
        "convergence": plot_convergence(values, x, x, metric="Recall@1"),
    }


@pytest.mark.parametrize("runs", [1, 8])
def test_every_run_is_in_the_legend_by_its_name(runs):
    for figure in drawings(runs).values():
        svg = saved(figure)
        assert "<svg" in svg
        written = [text.get_text() for text in figure.legends[0].get_texts()]
        whole = [" ".join(text.split()) for text in written]
        assert whole[:runs] == [" ".join(name.split()) for name in NAMES[:runs]]


def test_eight_runs_differ_without_color():
    looks = {
        (str(line.get_linestyle()), line._unscaled_dash_pattern[1], line.get_marker())
        for line in drawings(8)["recall"].axes[0].lines
    }
    assert len({dashes for _, dashes, _ in looks}) == 8
    assert len({marker for _, _, marker in looks}) == 8


def test_legend_takes_no_room_from_the_axes():
    heights = []
    for runs in (1, 8):
        figure = drawings(runs)["precision"]
        figure.draw_without_rendering()
        heights.append(figure.axes[0].get_window_extent().height)
    assert heights[1] == pytest.approx(heights[0], rel=0.1)


def test_legend_covers_no_data():
    for figure in drawings(8).values():
        figure.draw_without_rendering()
        legend = figure.legends[0].get_window_extent()
        assert figure.bbox.x0 <= legend.x0
        assert legend.x1 <= figure.bbox.x1
        for axes in figure.axes:
            assert not legend.overlaps(axes.get_tightbbox())


VALUES, X = training(runs=1)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_recall_at_k({}), "`first_ranks` must hold at least one run"),
        (lambda: plot_recall_at_k({"a": []}), r"`first_ranks\['a'\]` must be one row"),
        (
            lambda: plot_recall_at_k({"a": [1, 0]}),
            r"`first_ranks\['a'\]`.*0.0 at place 1",
        ),
        (
            lambda: plot_recall_at_k({"a": [1.5]}),
            r"`first_ranks\['a'\]` must be integers",
        ),
        (
            lambda: plot_recall_at_k({"a": [np.nan]}),
            r"`first_ranks\['a'\]`.*finite.*nan",
        ),
        (lambda: plot_recall_at_k({"a": [1]}, most=1), "`most` must be .* at least 2"),
        (lambda: plot_precision_recall({}), "`curves` must hold at least one run"),
        (
            lambda: plot_precision_recall({"a": ([0, 1], [1])}),
            r"`curves\['a'\]` must be as many recall as precision.*2 and 1",
        ),
        (
            lambda: plot_precision_recall({"a": ([0, 1], [1, np.nan])}),
            r"`curves\['a'\]: precision` must be finite.*nan at place 1",
        ),
        (
            lambda: plot_precision_recall({"a": ([0, 1], [1, 1.5])}),
            r"`curves\['a'\]: precision`.*from 0 to 1.*1.5",
        ),
        (
            lambda: plot_precision_recall({"a": ([1, 0], [1, 1])}),
            "recall must not fall",
        ),
        (
            lambda: plot_precision_recall({"a": [[0, 1]]}),
            r"`curves\['a'\]` must be a pair",
        ),
        (lambda: plot_roc({}), "`curves` must hold at least one run"),
        (
            lambda: plot_roc({"a": ([0, 1], [1, 0])}),
            "true positive rates must not fall",
        ),
        (
            lambda: plot_roc({"a": ([np.nan, 1], [1, 1])}),
            "false positive rates` must be fin",
        ),
        (lambda: draw_training({}, {}), "`histories` must hold at least one run"),
        (lambda: draw_training(VALUES, {}), "`x` must hold at least one run"),
        (
            lambda: draw_training(VALUES, {"b": [1]}),
            "`x` must have the runs of `histories`",
        ),
        (
            lambda: draw_training(VALUES, {"top-k": [1, 2]}),
            r"`x\['top-k'\]` must be as long as `histories\['top-k'\]`: 3.*2",
        ),
        (
            lambda: draw_training({"top-k": [1, 2, np.nan]}, X),
            r"`histories\['top-k'\]` must be finite.*nan at place 2",
        ),
        (lambda: draw_training(VALUES, {"top-k": [3, 2, 1]}), "must not fall"),
        (
            lambda: draw_training(VALUES, {"top-k": [-1, 2, 3]}),
            "from 0.*-1.0 at place 0",
        ),
        (
            lambda: plot_training({"a": {"loss": [1]}}, X, metric="m", x_label="x"),
            "`metric` must be in every history; that of 'a' has .'loss'.*metric='m'",
        ),
        (
            lambda: plot_convergence(VALUES, X, {"top-k": [1]}, metric="m"),
            r"`triplets\['top-k'\]` must be as long as `values\['top-k'\]`",
        ),
    ],
)
def test_wrong_arguments_are_named(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_runs_without_names_are_refused():
    with pytest.raises(TypeError, match=r"`first_ranks` must map names of runs.*list"):
        plot_recall_at_k([[1, 2]])


def test_missing_matplotlib_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "tfdml._core.figures", raising=False)
    with pytest.raises(ImportError, match=r'pip install "tfdml\[evaluation\]"'):
        plot_recall_at_k({"a": [1]})


def test_drawing_registers_no_figure_with_pyplot():
    with warnings.catch_warnings():
        saved(plot_recall_at_k({"a": [1, 2]}))
    assert (
        "matplotlib.pyplot" not in sys.modules
        or not sys.modules["matplotlib.pyplot"].get_fignums()
    )


def test_labels_and_runs_in_another_script_are_drawn_without_a_warning():
    name = "\uac15\uc544\uc9c0"
    values, x = {name: [0.4, 0.6]}, {name: [1, 2]}
    histories = {name: {name: values[name]}}
    saved(plot_training(histories, x, metric=name, x_label=name))
    saved(plot_convergence(values, x, x, metric=name))
    saved(plot_recall_at_k({name: [1, 2]}))


def test_small_file_has_64_colors_of_what_is_drawn(tmp_path):
    curve = {"a": [1, 2]}
    figure = plot_convergence(curve, curve, curve, metric="m")
    whole, small = tmp_path / "whole.png", tmp_path / "small.png"
    figure.savefig(whole)
    save_small(figure, small)
    images = [Image.open(file).convert("RGB") for file in (whole, small)]
    assert images[0].size == images[1].size
    assert len(images[1].getcolors()) <= 64
    apart = np.subtract(*(np.asarray(image, dtype=float) for image in images))
    assert np.abs(apart).mean() < 1
    assert small.stat().st_size < whole.stat().st_size / 2
