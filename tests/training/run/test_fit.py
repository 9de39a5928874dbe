"""The training run from a folder to a run folder."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tests.support.training_runs import RECIPE, fit
from tfdml.batch_designs import encode_labels
from tfdml.images import read_image, resize_image
from tfdml.metrics import Calibration, retrieval_metrics
from tfdml.models import load_embedder
from training.__main__ import main
from training.data.folder import read_folder
from training.evaluation.evaluate import default_folder
from training.evaluation.subject import open_subject
from training.measure.measure import SplitEvaluation

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def read(path):
    return json.loads(path.read_text("utf-8"))


@pytest.mark.jax
def test_run_folder_holds_everything(finished_run):
    assert sorted(p.name for p in finished_run.iterdir()) == [
        "embedder.keras",
        "history.json",
        "last.keras",
        "metrics.json",
        "neighbors.json",
        "queries.npz",
        "recipe.json",
        "report.html",
        "splits.json",
        "test_images.txt",
    ]
    history = read(finished_run / "history.json")
    assert len(history["loss"]) == 2
    assert {"val_precision_at_1", "val_map_at_r", "misplaced_pairs"} <= set(history)


def test_classes_of_the_splits_are_disjoint(finished_run, shapes):
    splits = read(finished_run / "splits.json")
    assert [len(splits[p]) for p in ("train", "validation", "test")] == [5, 2, 3]
    names = [name for split in splits.values() for name in split]
    assert sorted(names) == sorted(read_folder(shapes / "images").class_names)
    listed = (finished_run / "test_images.txt").read_text().splitlines()
    assert {path.split("/")[0] for path in listed} == set(splits["test"])


@pytest.mark.jax
def test_saved_embedder_gives_the_metrics_of_the_report(finished_run, shapes):
    paths = (finished_run / "test_images.txt").read_text().splitlines()
    pixels = [resize_image(read_image(shapes / "images" / path), 16) for path in paths]
    embedder = load_embedder(finished_run / "embedder.keras")
    embeddings = embedder.predict(np.stack(pixels), verbose=0)
    labels, _ = encode_labels([path.split("/")[0] for path in paths])
    measured = retrieval_metrics(embeddings, labels, (1, 5))
    assert read(finished_run / "metrics.json")["test_after_training"] == pytest.approx(
        measured
    )


@pytest.mark.parametrize("keep", ["best", "last"])
def test_kept_weights_are_those_of_the_best_or_the_last_epoch(
    shapes, tmp_path, monkeypatch, keep
):
    seen = []

    def evaluate(self, epoch, logs):
        seen.append(self.model.get_weights())
        logs["val_precision_at_1"] = [0.9, 0.1][epoch]

    monkeypatch.setattr(SplitEvaluation, "on_epoch_end", evaluate)
    run = tmp_path / "run"
    arguments = ["--run", str(run), "--set", f"fit.keep={keep}"]
    assert main(["fit", str(shapes / "recipe.toml"), *arguments]) == 0
    kept = load_embedder(run / "embedder.keras").get_weights()
    is_best, is_last = (
        all(np.array_equal(a, b) for a, b in zip(kept, weights, strict=True))
        for weights in seen
    )
    assert (is_best, is_last) == (keep == "best", keep == "last")
    assert read(run / "metrics.json")["best_epoch"] == (1 if is_best else 0)


def test_finished_run_is_not_overwritten(finished_run, shapes, capsys):
    arguments = ["fit", str(shapes / "recipe.toml"), "--run", str(finished_run)]
    assert main(arguments) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert (finished_run / "embedder.keras").exists()


def test_folder_that_is_no_run_is_never_replaced(shapes, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    arguments = ["fit", str(shapes / "recipe.toml"), "--run", str(tmp_path)]
    assert main([*arguments, "--overwrite"]) == 1
    assert "does not hold a run" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").exists()


def test_same_seed_gives_the_same_run(finished_run, shapes, tmp_path):
    assert fit(shapes / "recipe.toml", tmp_path / "run") == 0
    first, second = (
        read(run / "history.json")["loss"] for run in (finished_run, tmp_path / "run")
    )
    assert first == pytest.approx(second, rel=1e-4)


def test_few_classes_without_held_out_parts_train(shapes, tmp_path, capsys):
    write_shapes(tmp_path / "images", classes=2, images_per_class=2)
    recipe = RECIPE.replace("fraction = 0.3", "fraction = 0").replace(
        "fraction = 0.2", "fraction = 0"
    )
    (tmp_path / "r.toml").write_text(recipe.format(images=tmp_path / "images"))
    assert fit(tmp_path / "r.toml", tmp_path / "run", "--steps", "4") == 0
    said = capsys.readouterr().out
    assert "holds all 2 training classes, not 4" in said
    assert f"{tmp_path / 'images'}: train 4 images of 2 classes\n" in said
    assert "16 dimensions; TopKPrecisionLoss; 4 steps, 2 steps per epoch" in said
    assert read(tmp_path / "run/metrics.json")["test_after_training"] is None
    assert len((tmp_path / "run/test_images.txt").read_text().splitlines()) == 4


def test_broken_image_ends_the_run_with_its_name(shapes, tmp_path, capsys):
    write_shapes(tmp_path / "images", classes=10, images_per_class=2)
    (tmp_path / "images/class-0/broken.png").write_bytes(b"no image")
    arguments = [
        "fit",
        str(shapes / "recipe.toml"),
        "--images",
        str(tmp_path / "images"),
    ]
    assert main([*arguments, "--run", str(tmp_path / "run")]) == 1
    assert "class-0/broken.png: cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_training_classes_without_a_readable_image_are_reported(tmp_path, capsys):
    for number in range(6):
        path = tmp_path / f"images/class-{number}/1.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"no image")
    text = RECIPE.replace("[embedder]", "skip_unreadable = true\n[embedder]")
    (tmp_path / "r.toml").write_text(text.format(images=tmp_path / "images"))
    assert fit(tmp_path / "r.toml", tmp_path / "run") == 1
    assert "Received: 0, after 6 files were skipped" in capsys.readouterr().err


def test_size_that_no_memory_holds_is_refused(shapes, tmp_path, capsys):
    text = RECIPE.replace("image_size = 16", "image_size = 400000")
    (tmp_path / "r.toml").write_text(text.format(images=shapes / "images"))
    assert fit(tmp_path / "r.toml", tmp_path / "run") == 1
    assert "`image_size` must be at most 8192. Rec" in capsys.readouterr().err


def test_network_that_cannot_be_built_names_its_table(shapes, tmp_path, capsys):
    recipe = RECIPE.replace("widths", 'backbone = "MobileNut"\nwidths')
    # Refused before the images are read, which takes longest.
    (tmp_path / "r.toml").write_text(recipe.format(images=tmp_path / "nowhere"))
    assert fit(tmp_path / "r.toml", tmp_path / "run") == 1
    assert "[embedder]: `backbone` must be" in capsys.readouterr().err


def test_training_beats_the_untrained_network_on_unseen_classes(tmp_path):
    write_shapes(tmp_path / "images", classes=60, images_per_class=4)
    text = RECIPE.format(images=tmp_path / "images")
    # MAP@R rises from 0.2 to 0.7 to 0.94 or more, whatever the seed.
    for old, new in (
        ("steps = 12", "steps = 120"),
        ("per_epoch = 6", "per_epoch = 40"),
        ("rate = 0.003", "rate = 0.01"),
        ("classes_per_batch = 4", "classes_per_batch = 8"),
        ("jit_compile = false", "jit_compile = true"),
    ):
        text = text.replace(old, new)
    (tmp_path / "r.toml").write_text(text)
    assert fit(tmp_path / "r.toml", tmp_path / "run") == 0
    results = read(tmp_path / "run/metrics.json")
    before = results["test_before_training"]["map_at_r"]
    assert results["test_after_training"]["map_at_r"] > before + 0.15
    losses = read(tmp_path / "run/history.json")["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_evaluation_of_a_run_has_its_threshold_and_its_curve(
    finished_run, shapes, tmp_path
):
    copied = tmp_path / "copied"
    shutil.copytree(finished_run, copied)
    subject = open_subject(copied)
    assert default_folder(copied, subject) == copied / "evaluation"
    known = Calibration(0.5, "precision", 0.9, 0.9, 0.8, 0.1, 0.8, 1.0, 40, 30, 40)
    (copied / "calibration.json").write_text(json.dumps(known.to_json()))
    assert main(["evaluate", str(copied)]) == 0
    results = read(copied / "evaluation/metrics.json")
    after = read(copied / "metrics.json")["test_after_training"]
    assert results["metrics"]["map_at_r"] == pytest.approx(after["map_at_r"])
    assert results["classes_trained_on"] == 0
    page = (copied / "evaluation/report.html").read_text("utf-8")
    assert "<figcaption>Training</figcaption>" in page
    (copied / "calibration.json").write_text("{}")
    assert main(["evaluate", str(copied), "--overwrite"]) == 1  # before any work


def test_other_images_of_a_run_are_measured_whole_and_told_apart(
    finished_run, shapes, tmp_path
):
    write_shapes(tmp_path / "class", classes=4, images_per_class=2)
    subject = open_subject(finished_run, tmp_path / "class")
    assert (subject.split_name, len(subject.names)) == ("all", 8)
    trained = read(finished_run / "splits.json")["train"]
    shared = {f"class-{i}" for i in range(4)} & set(trained)
    assert subject.classes_trained_on == len(shared) > 0
    assert default_folder(finished_run, subject) == Path("evaluations/run-class-all")
    with pytest.raises(ValueError, match='must not be "all" for the images of a run'):
        open_subject(finished_run, split="all")
    moved = tmp_path / "moved"
    shutil.copytree(shapes / "images", moved)
    assert (
        open_subject(finished_run, moved, "test").names
        == open_subject(finished_run).names
    )
