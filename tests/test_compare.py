"""Comparing runs: what is one model, what differs, and what may be chance."""

import json

import numpy as np
import pytest

from tfdml.metrics import query_metrics
from tfdml.pair_counts import pair_counts
from training.__main__ import main
from training.compare import compare
from training.query_files import read_queries, write_queries, write_roc

LABELS = np.repeat(np.arange(30), 4)
NAMES = [f"class-{label}/{number}.png" for number, label in enumerate(LABELS)]


def embeddings(noise, seed):
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(30, 8))[LABELS]
    scatter = np.random.default_rng([1, seed]).normal(size=centers.shape)
    return centers + noise * scatter


def write_run(folder, noise, *, loss="TripletLoss", seed=0, order=None, roc=False):
    """Write what `compare` reads of a run, its images in any order."""
    folder.mkdir()
    order = np.arange(len(LABELS)) if order is None else order
    rows, labels = embeddings(noise, seed)[order], LABELS[order]
    results = query_metrics(rows, labels, (1, 5))
    write_queries(folder, results, [NAMES[i] for i in order])
    if roc:
        write_roc(folder, pair_counts(rows, labels))
    recipe = {
        "loss": {"name": loss},
        "fit": {"seed": seed, "steps": 20, "steps_per_epoch": 10},
    }
    (folder / "recipe.json").write_text(json.dumps(recipe))
    history = {"val_precision_at_1": [0.2, 0.3], "triplets": [1000.0, 2000.0]}
    (folder / "history.json").write_text(json.dumps(history))
    return folder


def test_better_run_is_significantly_better(tmp_path):
    worse = write_run(tmp_path / "worse", 1.5)
    better = write_run(tmp_path / "better", 0.8, loss="TopKPrecisionLoss")
    found = compare([worse, better])
    assert [model.name for model in found.models] == ["worse", "better"]
    assert (found.queries, found.classes) == (120, 30)
    assert found.models[0].differences == {}
    means = [read_queries(f).results.means()["map_at_r"] for f in (worse, better)]
    difference = found.models[1].differences["map_at_r"]
    assert difference.difference == pytest.approx(means[1] - means[0])
    assert difference.is_significant
    assert found.models[0].means["map_at_r"] == pytest.approx([means[0]])


def test_seeds_of_one_recipe_are_one_model(tmp_path):
    runs = [write_run(tmp_path / f"a-{seed}", 1.2, seed=seed) for seed in range(3)]
    other = write_run(tmp_path / "b", 1.2, loss="CircleLoss", seed=7)
    found = compare([*runs, other])
    assert [len(model.folders) for model in found.models] == [3, 1]
    assert found.models[0].means["precision_at_1"].shape == (3,)
    # The same noise by another seed: nothing but chance.
    assert not found.models[1].differences["precision_at_1"].is_significant


def test_queries_are_paired_by_their_name(tmp_path):
    first = write_run(tmp_path / "a", 1.2)
    order = np.random.default_rng(0).permutation(len(LABELS))
    second = write_run(tmp_path / "b", 1.2, loss="CircleLoss", order=order)
    found = compare([first, second])
    assert found.models[1].differences["map_at_r"] == (0, 0, 0, False)


def test_evaluation_counts_where_there_is_one(tmp_path):
    first = write_run(tmp_path / "a", 1.2)
    second = write_run(tmp_path / "b", 1.2, loss="CircleLoss")
    write_run(second / "evaluation", 0.1)
    found = compare([first, second])
    assert found.models[1].means["precision_at_1"] == pytest.approx([1.0])


def test_terminal_and_page_show_the_table_and_the_curves(tmp_path, capsys):
    write_run(tmp_path / "a", 1.2, roc=True)
    write_run(tmp_path / "b", 1.19, loss="CircleLoss")
    arguments = [str(tmp_path / "a"), str(tmp_path / "b")]
    out = tmp_path / "pages" / "both.html"
    metric = ["--metric", "recall_at_5"]
    assert main(["compare", *arguments, *metric, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Recall@5" in text.splitlines()[0]
    assert "n.s." in text.splitlines()[3]
    page = out.read_text("utf-8")
    for title in ("Recall against k", "Verification of pairs", "Training"):
        assert f"<figcaption>{title}</figcaption>" in page
    assert "Not measured: b; `evaluate` does." in page


def test_runs_that_cannot_be_compared_are_named(tmp_path):
    first = write_run(tmp_path / "a", 1.2)
    with pytest.raises(ValueError, match=r"at least two models.*Received: 1 runs of 1"):
        compare([first])
    with pytest.raises(ValueError, match=r"must not hold .* twice"):
        compare([first, first])
    with pytest.raises(ValueError, match="There is no run folder"):
        compare([first, tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no results of single queries \(no queries"):
        compare([first, tmp_path / "empty"])
    fewer = write_run(tmp_path / "b", 1, loss="CircleLoss", order=np.arange(100))
    with pytest.raises(
        ValueError, match=r"same queries.*120.*100.*'class-25/100\.png'"
    ):
        compare([first, fewer])
    other = write_run(tmp_path / "c", 1, loss="CircleLoss")
    with pytest.raises(ValueError, match=r"`metrics` must be some of .*'recall_at_2'"):
        compare([first, other], metrics=["recall_at_2"])
    whole = (other / "queries.npz").read_bytes()
    (other / "queries.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"queries\.npz' is damaged"):
        compare([first, other])


def test_names_are_told_apart_in_the_curves(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    first = write_run(tmp_path / "x" / "run", 1.2)
    second = write_run(tmp_path / "y" / "run", 1.2, loss="CircleLoss")
    out = tmp_path / "page.html"
    assert main(["compare", str(first), str(second), "--out", str(out)]) == 0
