"""Recipes with `unit_length = false`: trained, measured and compared by distance."""

import json

import numpy as np
import pytest

from tests.support.training_runs import fit
from tfdml.images import read_image, resize_image
from tfdml.metrics import cluster, clustering_metrics, retrieval_metrics
from tfdml.models import load_embedder, search_metric
from training.__main__ import main
from training.recipe.recipe import RecipeError, recipe_of

OF_DISTANCES = [
    "embedder.unit_length=false",
    "loss.name=ContrastiveLoss",
    "loss.normalize=false",
]


def read(path):
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def free_run(shapes, tmp_path_factory):
    """Return a run with embeddings of any length."""
    run = tmp_path_factory.mktemp("any-length") / "run"
    settings = [*OF_DISTANCES, "evaluation.table=weighted-contrastive"]
    more = [word for setting in settings for word in ("--set", setting)]
    assert fit(shapes / "recipe.toml", run, *more) == 0
    return run


def embedded_test_images(run, shapes):
    paths = (run / "test_images.txt").read_text().splitlines()
    pixels = [resize_image(read_image(shapes / "images" / path), 16) for path in paths]
    embedder = load_embedder(run / "embedder.keras")
    assert search_metric(embedder) == "squared_euclidean"
    rows = embedder.predict(np.stack(pixels), verbose=0)
    return rows, np.array([path.split("/")[0] for path in paths])


@pytest.mark.slow
def test_fit_measures_by_distance(free_run, shapes):
    rows, labels = embedded_test_images(free_run, shapes)
    assert (np.abs(np.linalg.norm(rows, axis=1) - 1) > 1e-3).any()
    results = read(free_run / "metrics.json")
    expected = retrieval_metrics(
        rows, labels, (1, 2, 4, 5, 8), metric="squared_euclidean"
    )
    assert results["test_after_training"] == pytest.approx(expected)
    clusters = cluster(rows, 3, metric="squared_euclidean")
    nmi = clustering_metrics(clusters, labels)["nmi_geometric"]
    assert results["table"]["columns"]["NMI"] == pytest.approx(nmi)
    first = read(free_run / "neighbors.json")[0]["neighbors"]
    similarities = [neighbor["similarity"] for neighbor in first]
    assert similarities == sorted(similarities, reverse=True)
    assert similarities[0] <= 0


@pytest.mark.slow
def test_evaluate_compares_by_distance_and_verifies_no_pairs(free_run, shapes, capsys):
    rows, labels = embedded_test_images(free_run, shapes)
    assert main(["evaluate", str(free_run)]) == 0
    assert "compared by squared Euclidean distance" in capsys.readouterr().out
    results = read(free_run / "evaluation" / "metrics.json")
    assert results["compared_by"] == "squared_euclidean"
    assert "verification" not in results
    expected = retrieval_metrics(rows, labels, (1,), metric="squared_euclidean")
    for name in ("precision_at_1", "map_at_r", "mean_average_precision"):
        assert results["metrics"][name] == pytest.approx(expected[name])
    page = (free_run / "evaluation" / "report.html").read_text("utf-8")
    assert "compared by squared Euclidean distance" in page


@pytest.mark.slow
def test_embeddings_in_a_file_are_compared_as_asked(free_run, shapes, tmp_path, capsys):
    rows, labels = embedded_test_images(free_run, shapes)
    np.save(tmp_path / "rows.npy", rows)
    command = ["evaluate", str(tmp_path / "rows.npy"), "--run", str(free_run)]
    for metric in ("cosine", "squared_euclidean"):
        out = tmp_path / metric
        assert main([*command, "--metric", metric, "--out", str(out)]) == 0
        expected = retrieval_metrics(rows, labels, (1,), metric=metric)
        found = read(out / "metrics.json")
        assert found["compared_by"] == metric
        value = found["metrics"]["mean_average_precision"]
        assert value == pytest.approx(expected["mean_average_precision"])
    assert main([*command, "--out", str(tmp_path / "usual")]) == 0  # as the run
    usual = read(tmp_path / "usual" / "metrics.json")["compared_by"]
    assert usual == "squared_euclidean"


@pytest.mark.slow
def test_threshold_of_distances_is_refused(free_run, capsys):
    assert main(["calibrate", str(free_run), "--precision", "0.9"]) == 1
    error = capsys.readouterr().err
    assert "a threshold is a cosine similarity" in error
    command = ["calibrate", str(free_run), "--precision", "0.9", "--if-possible"]
    assert main(command) == 0
    assert not (free_run / "calibration.json").exists()


def recipe_with(loss, **arguments):
    return recipe_of(
        {
            "data": {"images": "images"},
            "embedder": {"unit_length": False},
            "loss": {"name": loss, **arguments},
        }
    )


@pytest.mark.parametrize(
    ("loss", "arguments"),
    [
        ("LogRatioLoss", {}),
        ("NPairLoss", {}),
        ("LiftedStructureLoss", {"normalize": False}),
        ("BalancedContrastiveLoss", {"normalize": False}),
        ("TripletLoss", {"normalize": False}),
        ("NCALoss", {"euclidean": True}),
    ],
)
def test_losses_that_compare_lengths_go_with_any_length(loss, arguments):
    assert recipe_with(loss, **arguments).embedder.metric == "squared_euclidean"


@pytest.mark.parametrize(
    ("loss", "arguments", "remedy"),
    [
        ("ContrastiveLoss", {}, "Add normalize = false to [loss]."),
        ("BalancedContrastiveLoss", {}, "Add normalize = false"),
        ("NPairLoss", {"normalize": True}, "Add normalize = false"),
        ("TopKPrecisionLoss", {}, "Leave it out."),
        ("ProxyAnchorLoss", {}, "Leave it out."),
    ],
)
def test_losses_of_directions_are_refused_with_any_length(loss, arguments, remedy):
    with pytest.raises(RecipeError) as raised:
        recipe_with(loss, **arguments)
    message = str(raised.value)
    assert "`unit_length` must be true with a loss that compares directions" in message
    assert f"Received: {loss}. {remedy}" in message
