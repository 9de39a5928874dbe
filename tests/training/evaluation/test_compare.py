"""Comparing runs: what is one model, what differs, and what may be chance."""

import json

import numpy as np
import pytest

from tfdml.images import View
from tfdml.metrics import Difference, pair_counts
from training.__main__ import main
from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.evaluation.compare import compare
from training.evaluation.comparison_page import difference_text
from training.measure.measure import split_results, task_of
from training.measure.query_files import read_queries, write_queries, write_roc

pytestmark = pytest.mark.slow

LABELS = np.repeat(np.arange(30), 4)
NAMES = [f"class-{label}/{number}.png" for number, label in enumerate(LABELS)]


def embeddings(noise, seed):
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(30, 8))[LABELS]
    scatter = np.random.default_rng([1, seed]).normal(size=centers.shape)
    return centers + noise * scatter


def write_run(
    folder,
    noise,
    *,
    loss="TripletLoss",
    seed=0,
    order=None,
    roc=False,
    roles=None,
    boxes=None,
    classes=LABELS,
    names=NAMES,
):
    """Write what `compare` reads of a run, its images in any order."""
    folder.mkdir()
    order = np.arange(len(LABELS)) if order is None else order
    rows, labels = embeddings(noise, seed)[order], classes[order]
    data = DataSet(
        np.zeros((len(order), 1, 1, 3), "uint8"),
        labels,
        np.full(len(order), "test"),
        tuple(f"class {i:02}" for i in range(30)),
        roles=None if roles is None else roles[order],
        boxes=None if boxes is None else boxes[order],
    )
    split = Split(data, Images(data, View(1)), np.arange(len(data)))
    results = split_results(split, task_of(split, rows))
    write_queries(folder, results, split, [names[i] for i in order])
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


def test_boxes_of_one_image_are_queries_of_their_own(tmp_path):
    names = [f"{number // 2}.png" for number in range(len(LABELS))]
    boxes = np.array([[5 * (i % 2), 0, 5, 9] for i in range(len(LABELS))])
    about = {"names": names, "boxes": boxes}
    first = write_run(tmp_path / "a", 1.2, **about)
    order = np.arange(len(LABELS))[::-1]
    second = write_run(tmp_path / "b", 1.2, loss="CircleLoss", order=order, **about)
    assert read_queries(first).names[1] == "0.png#5,0,5,9"
    found = compare([first, second])
    assert found.models[1].differences["map_at_r"] == (0, 0, 0, False)
    unclear = write_run(tmp_path / "c", 1.2, loss="NCALoss", names=names)
    with pytest.raises(ValueError, match=r"its own name.*120 queries of 60 names"):
        compare([first, unclear])


def test_other_labels_or_another_gallery_are_refused(tmp_path):
    first = write_run(tmp_path / "a", 1.2)
    other = write_run(tmp_path / "b", 1.2, loss="CircleLoss", classes=LABELS[::-1])
    with pytest.raises(
        ValueError, match=r"same labels. 'class-0/0\.png' is 'class 00'"
    ):
        compare([first, other])
    roles = np.where(np.arange(len(LABELS)) % 4 == 3, "gallery", "query")
    roles = np.where(np.arange(len(LABELS)) % 4 == 2, "gallery", roles)
    whole = write_run(tmp_path / "c", 1.2, roles=roles)
    kept = np.delete(np.arange(len(LABELS)), [3, 7])
    half = write_run(tmp_path / "d", 1.2, loss="NCALoss", roles=roles, order=kept)
    with pytest.raises(ValueError, match="in the same gallery with the same labels"):
        compare([whole, half])


def test_runs_that_cannot_be_compared_are_named(tmp_path):
    first = write_run(tmp_path / "a", 1.2)
    with pytest.raises(ValueError, match=r"at least two models.*Received: 1 runs of 1"):
        compare([first])
    copy = write_run(tmp_path / "copy", 1.2)
    for twin in (first, copy):
        with pytest.raises(ValueError, match="two runs of one recipe and seed"):
            compare([first, twin])
    with pytest.raises(ValueError, match="There is no run folder"):
        compare([first, tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no results of single queries \(no queries"):
        compare([first, tmp_path / "empty"])
    fewer = write_run(tmp_path / "b", 1, loss="CircleLoss", order=np.arange(100))
    rule = r"same queries.*120 and 100.*'class-25/100\.png'"
    with pytest.raises(ValueError, match=rule):
        compare([first, fewer])
    other = write_run(tmp_path / "c", 1, loss="CircleLoss")
    with pytest.raises(ValueError, match=r"`metrics` must be some of .*'recall_at_2'"):
        compare([first, other], metrics=["recall_at_2"])
    whole = (other / "queries.npz").read_bytes()
    (other / "queries.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"queries\.npz' is damaged"):
        compare([first, other])
    (other / "recipe.json").write_text("{}")
    with pytest.raises(ValueError, match=r"recipe\.json is not a recipe of a run"):
        compare([first, other])


def test_run_counted_from_the_middle_has_no_training_curve(tmp_path):
    first = write_run(tmp_path / "a", 1.2)
    second = write_run(tmp_path / "b", 1.2, loss="CircleLoss")
    for folder in (first, second):
        history = {"val_precision_at_1": [0.2, 0.3], "triplets": [2000.0]}
        (folder / "history.json").write_text(json.dumps(history))
    out = tmp_path / "page.html"
    assert main(["compare", str(first), str(second), "--out", str(out)]) == 0
    assert "<figcaption>Training" not in out.read_text("utf-8")


def test_page_replaces_a_page_alone(tmp_path, capsys):
    runs = [str(write_run(tmp_path / "a", 1.2))]
    runs.append(str(write_run(tmp_path / "b", 1.2, loss="CircleLoss")))
    out = tmp_path / "page.html"
    for _ in range(2):
        assert main(["compare", *runs, "--out", str(out)]) == 0
    out.write_text("a diary")
    for other in (out, tmp_path):
        assert main(["compare", *runs, "--out", str(other)]) == 1
        assert "is not a comparison, and is not replaced" in capsys.readouterr().err
    assert out.read_text() == "a diary"


def test_small_differences_do_not_look_like_none():
    found = Difference(0.00012, -0.0003, 0.00061, False)
    assert difference_text("map_at_r", found) == "+0.01 [-0.03, +0.06] n.s."
    zero = Difference(0.0, -0.0, 0.0, False)
    assert difference_text("map_at_r", zero) == "+0.0 [+0.0, +0.0] n.s."
    far = Difference(0.021, 0.012, 0.034, True)
    assert difference_text("map_at_r", far) == "+2.1 [+1.2, +3.4]"


def test_names_are_told_apart(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    first = write_run(tmp_path / "x" / "run", 1.2)
    second = write_run(tmp_path / "y" / "run", 1.2, loss="CircleLoss")
    third = write_run(tmp_path / "third", 1.2, loss="NCALoss")
    write_run(third / "evaluation", 1.2, loss="HistogramLoss")
    found = compare([first, second, third / "evaluation"])
    assert [m.name for m in found.models] == [str(first), str(second), "third"]
