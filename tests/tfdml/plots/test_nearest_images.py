"""Nearest images of a set, and figures as notebooks show them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from tests.support.refuses import refusals, refuses
from tfdml.figure_style import new_figure
from tfdml.losses import ContrastiveLoss
from tfdml.plots import plot_nearest_images, plot_pair_weights

N = 6
EMBEDDINGS = np.stack([np.cos(np.arange(N) / 3), np.sin(np.arange(N) / 3)], axis=1)
IMAGES = np.broadcast_to(
    np.arange(N, dtype="uint8")[:, None, None, None], (N, 8, 8, 3)
).copy()
LABELS = np.array(["a", "a", "b", "b", "c", "c"])
ARGUMENTS = {"embeddings": EMBEDDINGS, "images": IMAGES, "labels": LABELS}


def shades(figure):
    return [int(np.asarray(i.get_array()).max()) for i in figure.axes[0].images]


def test_each_query_has_its_nearest_images_without_itself():
    figure = plot_nearest_images(EMBEDDINGS, IMAGES, LABELS, queries=[0, 5], k=2)
    assert shades(figure) == [0, 1, 2, 5, 4, 3]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in texts if text[0] in "\u2713\u2717"] == [
        f"{mark} {np.cos(steps / 3):.3f}"
        for mark, steps in [("\u2713", 1), ("\u2717", 2)] * 2
    ]


def test_queries_are_drawn_by_the_seed():
    drawn = [shades(plot_nearest_images(**ARGUMENTS, k=1, seed=s)) for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 8


@refusals(
    ("embeddings", EMBEDDINGS * np.nan, "must be finite"),
    ("images", IMAGES[:3], "must be the 6 images of the embeddings"),
    ("images", 7, "must be the 6 images of the embeddings"),
    ("labels", LABELS[:3], ""),
    ("queries", [6], "must be positions from 0 to 5"),
    ("queries", [0.5], "must be positions from 0 to 5"),
    ("k", 6, "must be"),
    ("seed", -1, "must be a whole number of at least 0"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    refuses(
        plot_nearest_images,
        argument=argument,
        value=value,
        rule=rule,
        valid=ARGUMENTS,
        received="" if argument in ("images", "k") else None,
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda: new_figure(2, 1),
        lambda: plot_pair_weights([ContrastiveLoss()], [0, 0, 1], EMBEDDINGS[:3]),
        lambda: plot_nearest_images(**ARGUMENTS, k=1),
    ],
    ids=["new figure", "pair weights", "nearest images"],
)
def test_notebooks_show_figures_without_magic_words(draw):
    formatter = pytest.importorskip("IPython.core.formatters").DisplayFormatter()
    shown, _ = formatter.format(draw())
    assert shown["image/png"].startswith(b"\x89PNG")
