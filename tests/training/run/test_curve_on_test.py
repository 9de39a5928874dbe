"""The curve on test images: measured on request, kept, and never chosen by."""

import json

import numpy as np
import pytest

from tests.support.training_runs import fit
from tfdml.models import load_embedder
from training.__main__ import main
from training.evaluation.figures import convergence
from training.recipe.recipe import RecipeError, recipe_of
from training.run.progress import Progress

pytestmark = pytest.mark.slow

SETTINGS = ["fit.steps=12", "fit.steps_per_epoch=4", "evaluation.test_every_epochs=2"]


def options(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def read(path):
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def run(shapes, tmp_path_factory):
    """Return a run of three epochs, measured after the second and the last."""
    run = tmp_path_factory.mktemp("curve") / "run"
    assert fit(shapes / "recipe.toml", run, *options(*SETTINGS)) == 0
    return run


def test_curve_is_in_the_history_beside_what_each_epoch_has(run):
    history = read(run / "history.json")
    assert len(history["loss"]) == len(history["val_precision_at_1"]) == 3
    curve = history["test"]
    assert (curve["epoch"], curve["step"]) == ([2, 3], [8, 12])
    assert len(curve["precision_at_1"]) == len(curve["map_at_r"]) == 2
    assert not {name for name in curve if name.startswith("queries")}
    assert not {name for name in history if name.startswith("test_")}


def test_last_value_is_that_of_the_last_weights(shapes, tmp_path):
    settings = [*SETTINGS, "fit.keep=last"]
    assert fit(shapes / "recipe.toml", tmp_path / "run", *options(*settings)) == 0
    curve = read(tmp_path / "run" / "history.json")["test"]
    after = read(tmp_path / "run" / "metrics.json")["test_after_training"]
    for name in ("precision_at_1", "mean_average_precision"):
        assert curve[name][-1] == pytest.approx(after[name])


def test_kept_weights_do_not_depend_on_it(run, shapes, tmp_path):
    without = [*SETTINGS[:2], "evaluation.test_every_epochs=0"]
    assert fit(shapes / "recipe.toml", tmp_path / "run", *options(*without)) == 0
    assert "test" not in read(tmp_path / "run" / "history.json")
    for name in ("embedder.keras", "last.keras"):
        kept, plain = (load_embedder(path / name) for path in (run, tmp_path / "run"))
        for one, other in zip(kept.get_weights(), plain.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    results = [read(path / "metrics.json") for path in (run, tmp_path / "run")]
    assert results[0]["best_epoch"] == results[1]["best_epoch"]


def test_curve_goes_on_where_the_run_was_interrupted(run, shapes, tmp_path):
    class Stops(KeyboardInterrupt):
        pass

    def interrupted(self, epoch, logs=None):
        measured(self, epoch, logs)
        if epoch == 1 and not stopped:
            stopped.append(epoch)
            raise Stops

    measured, stopped = Progress.on_epoch_end, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "on_epoch_end", interrupted)
        assert fit(shapes / "recipe.toml", tmp_path / "run", *options(*SETTINGS)) != 0
    assert not (tmp_path / "run").exists()
    assert fit(shapes / "recipe.toml", tmp_path / "run", *options(*SETTINGS)) == 0
    assert stopped == [1]
    curves = [read(path / "history.json")["test"] for path in (run, tmp_path / "run")]
    assert curves[0] == curves[1]


def test_curve_is_shown_as_what_nothing_is_chosen_by(run, shapes, tmp_path, capsys):
    page = (run / "report.html").read_text("utf-8")
    assert "<figcaption>Test</figcaption>" in page
    assert "no weights are chosen by it" in page
    titles = [figure.title for figure in convergence({"run": run})]
    assert titles == ["Training", "Training, on test images"]
    (lines, steps) = [
        axes.lines[0].get_xydata()
        for axes in list(convergence({"run": run}))[1].drawing.axes
    ]
    curve = read(run / "history.json")
    assert lines[:, 0].tolist() == [8, 12]
    assert lines[:, 1].tolist() == curve["test"]["precision_at_1"]
    assert steps[:, 0].tolist() == [curve["triplets"][1], curve["triplets"][2]]
    capsys.readouterr()
    more = options(*SETTINGS, "fit.steps=4")
    assert fit(shapes / "recipe.toml", tmp_path / "run", *more) == 0
    (epoch,) = [
        line for line in capsys.readouterr().out.splitlines() if "Epoch" in line
    ]
    assert "; test Precision@1 " in epoch
    assert "(for the record)" in epoch


def test_report_is_written_again_with_the_curve(run):
    assert main(["report", str(run)]) == 0
    assert "<figcaption>Test</figcaption>" in (run / "report.html").read_text("utf-8")


def test_run_without_test_images_has_no_curve(shapes, tmp_path, capsys):
    more = options(*SETTINGS, "data.test_fraction=0.0")
    assert fit(shapes / "recipe.toml", tmp_path / "run", *more) == 1
    assert "`test_every_epochs` must be 0 where no test" in capsys.readouterr().err


def test_negative_number_of_epochs_is_refused():
    tables = {"data": {"images": "a"}, "evaluation": {"test_every_epochs": -1}}
    with pytest.raises(RecipeError, match=r"`test_every_epochs` must be at least 0"):
        recipe_of(tables)
