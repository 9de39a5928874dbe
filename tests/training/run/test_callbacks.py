"""Callbacks that a recipe names: found, made with the run, told of its end."""

import json
import sys

import keras
import pytest

from tests.support.training_runs import fit
from training.recipe.recipe import RecipeError, recipe_of
from training.run.callbacks import RunCallbacks, TrainingRun

OWN = """
import keras

ENDS = []

class Recorder(keras.callbacks.Callback):
    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_epoch_end(self, epoch, logs=None):
        self.run.note("recorder", {"epoch": epoch, "loss": logs["loss"]})

    def on_run_end(self, results):
        ENDS.append(results)

class Stopping(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise RuntimeError("stopped by the test")

class Failing(keras.callbacks.Callback):
    def on_run_end(self, results):
        raise OSError("no network")

def nothing():
    return None

value = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module with callbacks, in the folder where the command runs."""
    (tmp_path / "own_callbacks.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_callbacks"
    sys.modules.pop("own_callbacks", None)


def named(*callbacks):
    fit_table = {"callbacks": list(callbacks)}
    return RunCallbacks(recipe_of({"data": {"images": "x"}, "fit": fit_table}))


def test_a_class_gets_its_run_if_it_asks_for_it(own, tmp_path):
    made = named(f"{own}:Recorder", "keras.callbacks:TerminateOnNaN").make(
        tmp_path, "demo"
    )
    recorder, other = made
    assert isinstance(other, keras.callbacks.TerminateOnNaN)
    assert recorder.run.name == "demo"
    assert recorder.run.recipe["fit"]["steps"] == 1000
    assert recorder.run.noted("recorder") == {}
    recorder.on_epoch_end(3, {"loss": 0.5})
    again = TrainingRun("demo", tmp_path, {}, 1)
    assert again.noted("recorder") == {"epoch": 3, "loss": 0.5}


def test_a_package_offers_callbacks_by_entry_point(own, tmp_path, monkeypatch):
    info = tmp_path / "own_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: own-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[tfdml.callbacks]\nrecorder = {own}:Recorder\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (made,) = named("recorder").make(tmp_path, "demo")
    assert type(made).__name__ == "Recorder"
    with pytest.raises(RecipeError, match="Did you mean 'recorder'"):
        named("recorders")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wanbd", "Received: 'wanbd'. Did you mean 'wandb'?"),
        ("zzz", "Received: 'zzz'. Known: .*mlflow.*tensorboard.*wandb"),
        ("no_such_module:Thing", "cannot be imported .*no_such_module"),
        ("own_callbacks:Missing", "cannot be imported .*Missing"),
        ("own_callbacks:value", "cannot be imported .*not callable"),
    ],
)
def test_callbacks_that_are_not_there_are_named(own, name, message):
    with pytest.raises(RecipeError, match=r"\[fit\]: `callbacks`.*" + message):
        named(name)


def test_what_is_no_callback_is_refused(own, tmp_path):
    callbacks = named("own_callbacks:nothing")
    with pytest.raises(RecipeError, match=r"must make a keras\.callbacks\.Callback"):
        callbacks.make(tmp_path, "demo")


@pytest.mark.parametrize("package", ["mlflow", "wandb"])
def test_a_missing_tracker_is_named_with_its_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"training.run.{package}_tracker", raising=False)
    with pytest.raises(RecipeError, match=rf"pip install \"tfdml\[{package}\]\""):
        named(package)


def test_an_error_at_the_end_is_a_warning(own, tmp_path):
    callbacks = named("own_callbacks:Failing", "own_callbacks:Recorder")
    callbacks.make(tmp_path, "demo")
    with pytest.warns(UserWarning, match="Failing failed at the end .*no network"):
        callbacks.end({"seconds": 1})
    assert sys.modules["own_callbacks"].ENDS == [{"seconds": 1}]
    callbacks.end(None)  # they are told once
    assert len(sys.modules["own_callbacks"].ENDS) == 1


@pytest.fixture
def trackers(monkeypatch, tmp_path):
    """MLflow's store of files and wandb without a network, as the environment says."""
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow`")
    wandb = pytest.importorskip("wandb", reason="the extra `wandb`")
    for name, value in {
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_EXPERIMENT_NAME": "shapes",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
    }.items():
        monkeypatch.setenv(name, value)
    yield mlflow
    wandb.teardown()


@pytest.mark.slow
def test_trackers_follow_a_run_that_goes_on(shapes, tmp_path, trackers, own):
    recipe, run = shapes / "recipe.toml", tmp_path / "run"
    names = '"mlflow", "wandb", "tensorboard", "own_callbacks:Recorder"'
    stopping = f'fit.callbacks=[{names}, "own_callbacks:Stopping"]'
    assert fit(recipe, run, "--set", stopping) == 1
    client = trackers.MlflowClient()
    notes = json.loads((tmp_path / "run.unfinished" / "trackers.json").read_text())
    stopped = client.get_run(notes["mlflow"]["run_id"])
    assert stopped.info.status == "FAILED"
    assert fit(recipe, run, "--set", f"fit.callbacks=[{names}]") == 0
    assert json.loads((run / "trackers.json").read_text())["wandb"] == notes["wandb"]

    experiment = client.get_experiment_by_name("shapes")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == stopped.info.run_id
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["fit.learning_rate"] == "0.003"
    assert found.data.params["loss.name"] == "TopKPrecisionLoss"
    history = json.loads((run / "history.json").read_text())
    logged = client.get_metric_history(found.info.run_id, "train/loss")
    assert [(m.step, m.value) for m in logged] == list(enumerate(history["loss"], 1))
    results = json.loads((run / "metrics.json").read_text())["test_after_training"]
    metrics = found.data.metrics
    assert metrics["test/precision_at_1"] == results["precision_at_1"]
    assert metrics["validation/precision_at_1"] == history["val_precision_at_1"][-1]
    assert [a.path for a in client.list_artifacts(found.info.run_id)] == ["report.html"]

    runs = list((tmp_path / "wandb").glob("offline-run-*"))
    assert len(runs) >= 1
    assert {path.name.rsplit("-", 1)[1] for path in runs} == {notes["wandb"]["id"]}
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    first, second = sys.modules["own_callbacks"].ENDS
    assert first is None
    assert second["test_after_training"] == results


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*noload")  # of MLflow's own SQL
def test_mlflow_keeps_runs_in_a_local_database_by_default(
    trackers, tmp_path, monkeypatch
):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.html").write_text("a report")
    callbacks = named("mlflow")
    (tracker,) = callbacks.make(tmp_path, "demo")
    tracker.on_epoch_end(0, {"loss": 0.5, "val_map_at_r": 0.25})
    callbacks.end({"test_after_training": None})
    notes = json.loads((tmp_path / "trackers.json").read_text())
    found = trackers.MlflowClient().get_run(notes["mlflow"]["run_id"])
    assert found.info.status == "FINISHED"
    assert found.data.metrics == {"train/loss": 0.5, "validation/map_at_r": 0.25}
