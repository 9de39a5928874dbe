"""Runs that are compatible with an old model, also after an interruption."""

import json
import shutil

import numpy as np
import pytest

import training.run.other_model
from tests.support.training_runs import RECIPE, fit
from tests.training.run.test_resume import assert_same_run, stop_fit
from tfdml.models import build_embedder, load_embedder
from training.recipe.recipe import RecipeError, read_recipe
from training.run.opened_model import open_model
from training.run.state import read_state

pytestmark = pytest.mark.slow

COMPATIBLE = '[compatible]\nrun = "{old}"\nweight = 0.5\n'
STOPPED = ("training.run.progress:Progress", "on_epoch_begin", 2, "before")


def write_recipe(folder, shapes, old, more="", **changes):
    text = RECIPE.format(images=shapes / "images") + COMPATIBLE.format(old=old) + more
    for before, after in changes.values():
        assert before in text
        text = text.replace(before, after)
    (folder / "recipe.toml").write_text(text)
    return folder / "recipe.toml"


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("MultiSimilarityLoss", marks=pytest.mark.full),
        pytest.param("ProxyAnchorLoss", marks=pytest.mark.backend),
    ],
)
def test_interrupted_run_ends_as_if_it_had_not_been(
    loss, shapes, finished_run, tmp_path, capsys
):
    old = shutil.copytree(finished_run, tmp_path / "old")
    more = f'[loss]\nname = "{loss}"\n'
    recipe = write_recipe(tmp_path, shapes, old, more)
    assert fit(recipe, tmp_path / "whole") == 0
    text = capsys.readouterr().out
    assert f"{loss}, compatible with {old}" in text
    assert "Embedding the training images by old." in text
    stop_fit(recipe, tmp_path / "run", *STOPPED)
    kept = np.load(tmp_path / "run.unfinished" / "old_rows.npy")
    splits = json.loads((tmp_path / "whole" / "splits.json").read_text())
    assert kept.shape == (4 * len(splits["train"]), 16)
    if loss == "ProxyAnchorLoss":
        state = read_state(tmp_path / "run.unfinished" / "state.npz")[0]["model"]
        means = kept.reshape(len(splits["train"]), 4, 16).mean(axis=1)
        assert any(
            a.shape == means.shape and np.allclose(a, means, atol=1e-6) for a in state
        )
    shutil.rmtree(old)  # what is needed of it is with the state
    assert fit(recipe, tmp_path / "run") == 0
    assert "Resuming after epoch 1" in capsys.readouterr().out
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert load_embedder(tmp_path / "run" / "embedder.keras").output_shape == (None, 16)


def test_old_embeddings_are_those_of_the_old_view(shapes, finished_run, tmp_path):
    embedder = build_embedder(24, 16, widths=(4,))
    embedder.save(tmp_path / "old.keras")
    recipe = write_recipe(tmp_path, shapes, tmp_path / "old.keras")
    rows = []
    save = np.save

    def remembered(file, values, **kwargs):
        rows.append(values)
        save(file, values, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.run.other_model.np, "save", remembered)
        assert fit(recipe, tmp_path / "run") == 0
    from training.run.finished_run import read_finished_run

    split, _ = read_finished_run(tmp_path / "run").split("train")
    expected = open_model(tmp_path / "old.keras").embed_others(split)
    np.testing.assert_allclose(rows[0], expected, atol=1e-6)
    assert not (tmp_path / "run" / "old_rows.npy").exists()
    exported = read_finished_run(tmp_path / "run").embedder()
    assert exported.input_shape == (None, 16, 16, 3)


@pytest.mark.full
def test_influence_brings_the_run_nearer_to_the_old_model(
    shapes, finished_run, tmp_path
):
    """More weight of the old gallery turns the new embeddings to the old ones."""
    old = load_embedder(finished_run / "embedder.keras")
    images = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3)).astype("float32")
    near = []
    for name, weight in (("light", "0.001"), ("heavy", "50.0")):
        (tmp_path / name).mkdir()
        recipe = write_recipe(
            tmp_path / name,
            shapes,
            finished_run,
            '[loss]\nname = "SupervisedContrastiveLoss"\n',
            weight=("weight = 0.5", f"weight = {weight}"),
            seed=("jit_compile", "seed = 7\nkeep = 'last'\njit_compile"),
        )
        assert fit(recipe, tmp_path / name / "run") == 0
        new = load_embedder(tmp_path / name / "run" / "embedder.keras")
        rows = [m.predict(images, verbose=0) for m in (old, new)]
        near.append(float(np.mean(np.sum(rows[0] * rows[1], axis=1))))
    assert near[1] > near[0]


def test_other_kinds_of_models_are_refused_before_images_are_read(
    shapes, finished_run, tmp_path, capsys
):
    build_embedder(16, 8, widths=(4,)).save(tmp_path / "short.keras")
    lengths = build_embedder(16, 16, widths=(4,), unit_length=False)
    lengths.save(tmp_path / "lengths.keras")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("short.keras", "`embedding_dimension` is 16. Received: "),
        ("short.keras", "Set embedding_dimension = 8 in [embedder]."),
        ("lengths.keras", "whose embeddings are compared by squared_euclidean"),
        ("nowhere", "[compatible]: `run`: There is no model at"),
        ("empty", "[compatible]: `run`: "),
    ):
        recipe = write_recipe(tmp_path, shapes, tmp_path / name)
        recipe.write_text(recipe.read_text().replace("/images", "/images-gone"))
        assert fit(recipe, tmp_path / "run") == 1
        assert message in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "run.unfinished").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            '[loss]\nname = "ClusteringLoss"\n',
            r"\[compatible\]: `run` must be left out with",
        ),
        ('[loss]\nname = "LogRatioLoss"\n', r"nor on proxies\. Received: LogRatioLoss"),
        ("[loss]\ndimensions = [8, 16]\n", r"with `dimensions` in \[loss\]"),
        ('[loss]\nname = "LearnedMarginLoss"\n', "Received: LearnedMarginLoss"),
        ('[loss]\nname = "ContrastiveLoss"\n[moments]\norder = 2\n', "with moments"),
    ],
)
def test_losses_that_compare_no_galleries_are_refused(more, message, tmp_path):
    recipe = write_recipe(tmp_path, tmp_path, "runs/old", more)
    with pytest.raises(RecipeError, match=message):
        read_recipe(recipe)


def test_dimension_of_a_model_is_known_before_it_embeds(finished_run):
    assert open_model(finished_run).dimension == 16
    assert open_model(finished_run / "embedder.keras").dimension == 16


TEACHER = '[teacher]\nrun = "{teacher}"\nweight = 2.0\n'


@pytest.mark.parametrize(
    "loss",
    [
        "ProxyAnchorLoss",
        pytest.param("MultiSimilarityLoss", marks=pytest.mark.full),
    ],
)
def test_taught_run_that_is_interrupted_ends_as_if_it_had_not_been(
    loss, shapes, tmp_path, capsys
):
    teacher = tmp_path / "teacher.keras"
    build_embedder(24, 40, widths=(8,)).save(teacher)
    text = RECIPE.format(images=shapes / "images") + TEACHER.format(teacher=teacher)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text + f'[loss]\nname = "{loss}"\n')
    assert fit(recipe, tmp_path / "whole") == 0
    assert f"{loss}, taught by {teacher}" in capsys.readouterr().out
    history = json.loads((tmp_path / "whole" / "history.json").read_text())
    both = np.array(history["classes_loss"]) + 2 * np.array(history["teacher_loss"])
    np.testing.assert_allclose(history["loss"], both, rtol=1e-4)
    assert min(history["teacher_loss"]) > 0
    stop_fit(recipe, tmp_path / "run", *STOPPED)
    kept = np.load(tmp_path / "run.unfinished" / "teacher_rows.npy")
    assert kept.shape[1] == 40
    teacher.unlink()
    assert fit(recipe, tmp_path / "run") == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    student = load_embedder(tmp_path / "run" / "embedder.keras")
    assert student.output_shape == (None, 16)


@pytest.mark.full
def test_run_can_have_an_old_model_and_a_teacher(shapes, finished_run, tmp_path):
    build_embedder(16, 40, widths=(8,)).save(tmp_path / "teacher.keras")
    teacher = TEACHER.format(teacher=tmp_path / "teacher.keras")
    similarity = 'loss = "SimilarityDistillationLoss"\ntemperature = 0.5\n'
    chunk = ("[batches]", "[batches]\nchunk = 4")
    recipe = write_recipe(
        tmp_path, shapes, finished_run, teacher + similarity, chunk=chunk
    )
    assert fit(recipe, tmp_path / "run") == 0
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert np.isfinite(history["classes_loss"] + history["teacher_loss"]).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[moments]\norder = 2\n", r"\[teacher\] must be left out with moments"),
        ("temperature = 2.0\n", "`temperature` must be left out with RelationalDist"),
        ("weight = 0.0\n", "`weight` must be above 0"),
        ('loss = "TripletLoss"\n', "`loss` must be 'RelationalDistillationLoss' or"),
        (
            'loss = "SimilarityDistillationLoss"\nangle_weight = 1.0\n',
            "`angle_weight` must be left out with SimilarityDistillationLoss",
        ),
    ],
)
def test_keys_of_a_teacher_are_checked(more, message, tmp_path):
    text = RECIPE.format(images=tmp_path) + f'[teacher]\nrun = "t"\n{more}'
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(RecipeError, match=message):
        read_recipe(tmp_path / "recipe.toml")
