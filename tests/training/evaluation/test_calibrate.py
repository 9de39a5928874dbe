"""A finished run read again, and the threshold chosen on its validation images."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tfdml.images import read_image, resize_image
from tfdml.metrics import Calibration, calibrate, match_scores
from tfdml.models import load_embedder
from training.__main__ import main
from training.recipe.recipe import read_recipe
from training.reports.threshold import calibration_text
from training.run.finished_run import read_finished_run

pytestmark = [pytest.mark.backend, pytest.mark.slow]

RECIPE = """
[data]
images = "{images}"
test_fraction = 0.2
validation_fraction = 0.5
skip_unreadable = true
[embedder]
image_size = 16
embedding_dimension = 16
widths = [8]
pooling = "flatten"
[loss]
name = "ContrastiveLoss"
[batches]
images_per_class = 2
classes_per_batch = 2
[fit]
steps = 2
steps_per_epoch = 2
jit_compile = false
decay_at = [1]
decay_factor = 0.5
schedule = "steps"
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("calibrate")
    write_shapes(root / "images", classes=16, images_per_class=5)
    (root / "recipe.toml").write_text(RECIPE.format(images=root / "images"))
    assert main(["fit", str(root / "recipe.toml"), "--run", str(root / "run")]) == 0
    return root


@pytest.fixture
def run(folders, tmp_path):
    """A copy of the run, to be changed."""
    return shutil.copytree(folders / "run", tmp_path / "run")


def validation_scores(folders, splits=("validation",), **options):
    """The scores by the files and the splits that the run noted."""
    run = folders / "run"
    classes_of = json.loads((run / "splits.json").read_text())
    classes = [name for split in splits for name in classes_of[split]]
    files = [
        f for name in classes for f in sorted((folders / "images" / name).iterdir())
    ]
    pixels = np.stack([resize_image(read_image(file), 16) for file in files])
    embeddings = load_embedder(run / "embedder.keras").predict(pixels, verbose=0)
    return match_scores(embeddings, [f.parent.name for f in files], **options)


# A run that is read again


def test_recipe_comes_back_as_it_was(folders):
    finished = read_finished_run(folders / "run")
    assert finished.recipe == read_recipe(folders / "recipe.toml")
    assert finished.folder == folders / "run"


def test_splits_have_the_images_that_the_run_noted(folders):
    finished = read_finished_run(str(folders / "run"))
    splits = json.loads((folders / "run/splits.json").read_text())
    for split_name, classes in splits.items():
        split, names = finished.split(split_name)
        assert split.data.class_names == tuple(classes)
        assert len(names) == len(split.positions) == 5 * len(classes)
        file = folders / "images" / names[3]
        expected = resize_image(read_image(file), 16)
        received = split.images.central(split.positions[3:4])[0]
        np.testing.assert_array_equal(received, expected)
    tests = (folders / "run/test_images.txt").read_text().splitlines()
    assert finished.split("test")[1] == tests


def test_embedder_is_the_one_that_was_kept(folders):
    received = read_finished_run(folders / "run").embedder().get_weights()
    expected = load_embedder(folders / "run/embedder.keras").get_weights()
    for weights, others in zip(received, expected, strict=True):
        np.testing.assert_array_equal(weights, others)


def test_unreadable_files_are_left_out_and_named(folders, run, tmp_path, capsys):
    images = shutil.copytree(folders / "images", tmp_path / "moved")
    name = read_finished_run(run).split("validation")[1][2]
    (images / name).write_text("no image")
    split, names = read_finished_run(run).split("validation", images)
    assert name not in names
    assert len(split.data) == len(names) == 39
    assert name in capsys.readouterr().out


def test_moved_images_are_named_with_the_remedy(run, tmp_path):
    finished = read_finished_run(run)
    settings = dataclasses.replace(finished.recipe.data, images=str(tmp_path / "gone"))
    recipe = dataclasses.replace(finished.recipe, data=settings)
    moved = dataclasses.replace(finished, recipe=recipe)
    with pytest.raises(
        FileNotFoundError, match=r"images of the run are no longer in .*gone'.*`images`"
    ):
        moved.split("test")
    with pytest.raises(FileNotFoundError, match=r"There are no images at .*here'"):
        moved.split("test", tmp_path / "here")


def test_images_that_the_run_trained_on_are_refused(folders, run, tmp_path):
    images = shutil.copytree(folders / "images", tmp_path / "other")
    splits = json.loads((run / "splits.json").read_text())
    for name in splits["validation"]:  # then others validate
        shutil.rmtree(images / name)
    finished = read_finished_run(run)
    with pytest.raises(ValueError, match="must not hold what the run trained on"):
        finished.split("validation", images)
    assert len(finished.split("train", images)[1])


@pytest.mark.parametrize(
    "name", ["metrics.json", "recipe.json", "splits.json", "embedder.keras"]
)
def test_folder_of_no_finished_run_is_refused(run, name):
    (run / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no finished run .no {name}"):
        read_finished_run(run)


@pytest.mark.parametrize(
    "change",
    [{"more": {}}, {"data": {}}, {"fit": {"stepz": 1}}, {"fit": {"steps": -1}}],
    ids=str,
)
def test_recipe_of_another_version_is_refused(run, change):
    file = run / "recipe.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(
        ValueError, match=r"recipe\.json is not a recipe that this version"
    ):
        read_finished_run(run)


def test_table_that_an_older_run_lacks_has_its_defaults(run):
    file = run / "recipe.json"
    tables = json.loads(file.read_text())
    del tables["images"]
    file.write_text(json.dumps(tables))
    assert read_finished_run(run).recipe.images.resize == 0


# The threshold


@pytest.mark.parametrize(
    "target", [{"precision": 0.4}, {"false_positive_rate": 0.5}], ids=str
)
def test_threshold_is_that_of_the_validation_images(folders, run, target, capsys):
    ((name, value),) = target.items()
    option = f"--{name.replace('_', '-')}"
    assert main(["calibrate", str(run), option, str(value)]) == 0
    expected = calibrate(validation_scores(folders), **target)
    found = Calibration.read(run / "calibration.json")
    assert found.queries == 40
    assert found.threshold == pytest.approx(expected.threshold, abs=1e-5)
    assert found.precision == pytest.approx(expected.precision, abs=0.03)
    written, what_next = (
        str(run / "calibration.json"),
        "Export and index again to use it.",
    )
    printed = capsys.readouterr().out
    assert printed == f"{calibration_text(found)}\nWritten to {written}. {what_next}\n"


def test_training_images_make_the_gallery_larger(folders, run):
    arguments = ["calibrate", str(run), "--false-positive-rate", "0.5"]
    assert main([*arguments, "--training-images"]) == 0
    found = Calibration.read(run / "calibration.json")
    splits = json.loads((run / "splits.json").read_text())
    count = 40 + 5 * len(splits["train"])
    assert (found.queries, found.gallery) == (40, count)
    is_query = np.arange(count) < 40
    names = ("validation", "train")
    expected = calibrate(
        validation_scores(folders, names, is_query=is_query), false_positive_rate=0.5
    )
    assert found.threshold == pytest.approx(expected.threshold, abs=1e-5)


def test_rate_that_cannot_be_reached_leaves_the_file_of_before(run, capsys):
    assert main(["calibrate", str(run), "--precision", "0.4"]) == 0
    before = (run / "calibration.json").read_text()
    assert main(["calibrate", str(run), "--false-positive-rate", "0.001"]) == 1
    assert "40 queries cannot measure a smaller one" in capsys.readouterr().err
    assert (run / "calibration.json").read_text() == before


@pytest.mark.parametrize("option", ["--precision", "--false-positive-rate"])
def test_rate_that_cannot_be_reached_ends_well_where_allowed(run, option, capsys):
    rates = {"--precision": "0.99", "--false-positive-rate": "0.001"}
    arguments = ["calibrate", str(run), option, rates[option]]
    assert main(arguments) == 1
    reason = capsys.readouterr().err.partition("error: ")[2]
    assert main([*arguments, "--if-possible"]) == 0
    assert capsys.readouterr().out == f"No threshold was chosen. {reason}"
    assert not (run / "calibration.json").exists()


@pytest.mark.parametrize("fault", ["images", "rate", "run", "network"])
def test_no_other_error_is_allowed(folders, run, tmp_path, fault, capsys):
    rate = "2" if fault == "rate" else "0.4"
    images = tmp_path / "gone" if fault == "images" else folders / "images"
    if fault == "run":
        (run / "splits.json").unlink()
    if fault == "network":
        (run / "embedder.keras").write_bytes(b"")
    arguments = ["calibrate", str(run), "--precision", rate, "--images", str(images)]
    assert main([*arguments, "--if-possible"]) == 1
    assert "error: " in capsys.readouterr().err


def test_rate_out_of_range_is_reported_before_anything_is_read(tmp_path, capsys):
    assert main(["calibrate", str(tmp_path / "no run"), "--precision", "1.5"]) == 1
    assert "`precision` must be above 0 and at most 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [[], ["--precision", "1", "--false-positive-rate", "0.1"]]
)
def test_one_target_must_be_given(run, options):
    with pytest.raises(SystemExit):
        main(["calibrate", str(run), *options])


def manifest(folders, run, columns, row):
    """Write a manifest of the run's classes; `row` maps (split, class, number)."""
    splits = json.loads((run / "splits.json").read_text())
    rows = [
        f"{name}/{number}.png,{row(split, name, number)}"
        for split, names in splits.items()
        for name in names
        for number in range(5)
    ]
    file = folders / "images" / f"{run.parent.name}.csv"
    file.write_text("\n".join([f"path,{columns}", *rows]) + "\n")
    return str(file)


def test_run_without_validation_images_is_told_what_to_do(folders, run, capsys):
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["data"]["validation_fraction"] = 0.0
    (run / "recipe.json").write_text(json.dumps(recipe))
    file = manifest(
        folders,
        run,
        "label,split",
        lambda split, name, _: f"{name},{split.replace('validation', 'test')}",
    )
    arguments = ["calibrate", str(run), "--precision", "0.9", "--images", file]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert "has no validation images" in error
    assert "`validation_fraction` above 0" in error
    assert main([*arguments, "--if-possible"]) == 0


def test_continuous_labels_are_refused(folders, run, capsys):
    file = manifest(
        folders, run, "label_0,label_1,split", lambda split, _, i: f"{i}.5,1.5,{split}"
    )
    (run / "splits.json").write_text(json.dumps({"train": []}))
    arguments = ["calibrate", str(run), "--precision", "0.9", "--images", file]
    assert main(arguments) == 1
    assert "continuous labels" in capsys.readouterr().err
    assert main([*arguments, "--if-possible"]) == 0


def test_images_of_the_querys_own_sequence_are_left_out(folders, run):
    file = manifest(
        folders,
        run,
        "label,split,sequence",
        lambda split, name, i: f"{name},{split},{name} {i % 2}",
    )
    arguments = ["calibrate", str(run), "--false-positive-rate", "0.5"]
    assert main([*arguments, "--images", file]) == 0
    found = Calibration.read(run / "calibration.json")
    classes = json.loads((run / "splits.json").read_text())["validation"]
    clips = [f"{name} {i % 2}" for name in classes for i in range(5)]
    expected = calibrate(
        validation_scores(folders, groups=clips), false_positive_rate=0.5
    )
    assert found.threshold == pytest.approx(expected.threshold, abs=1e-5)
    apart = calibrate(validation_scores(folders), false_positive_rate=0.5)
    assert found.recall < apart.recall


def test_evaluation_says_what_the_threshold_means_on_test(run, capsys):
    assert main(["calibrate", str(run), "--precision", "0.4"]) == 0
    threshold = json.loads((run / "calibration.json").read_text())["threshold"]
    assert main(["evaluate", str(run), "--overwrite"]) == 0
    printed = capsys.readouterr().out
    assert f"At the run's threshold, a similarity of {threshold:.4f}:" in printed
    results = json.loads((run / "evaluation/metrics.json").read_text())
    at = results["at_threshold"]
    assert at["threshold"] == threshold
    assert at["queries"] == results["queries"]
    assert at["gallery"] == results["gallery"]
    recall = f"{100 * at['recall']:.1f}% of the queries with a positive"
    assert recall in printed
    assert recall in (run / "evaluation/report.html").read_text("utf-8")
