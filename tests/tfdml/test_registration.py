"""`import tfdml` is enough to load a model, and imports neither Keras nor a backend."""

import importlib
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import tfdml
from tfdml import _registration

SAVED = Path(__file__).parents[1] / "data" / "before_move" / "keras"
LIGHT = """
import sys, tfdml
heavy = {"keras", "tensorflow", "jax", "torch", "matplotlib", "sklearn"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
RESOLVE = """
import keras
config = {
    "class_name": "function",
    "config": "tfdml>caption_distance",
    "module": "tfdml.ops._label_distances",
    "registered_name": "tfdml>caption_distance",
}
function = keras.saving.deserialize_keras_object(config)
assert "tfdml.ops" not in sys.modules
rows = keras.ops.eye(2)
assert float(function(rows, rows)[0, 1]) == 2
assert keras.saving.serialize_keras_object(function)["config"] == config["config"]
loss = {
    "class_name": "LogRatioLoss",
    "config": {"label_distance": config},
    "module": "tfdml.losses",
    "registered_name": "tfdml>LogRatioLoss",
}
loss = keras.saving.deserialize_keras_object(loss)
from tfdml.ops import caption_distance
assert loss.label_distance is caption_distance
"""
LOAD = """
import keras
for file in sys.argv[1:]:
    model = keras.saving.load_model(file)
    stored = model.to_json()
    assert keras.models.model_from_json(stored).to_json() == stored
"""


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.backend
def test_import_of_the_package_alone_loads_every_saved_function_and_class():
    run(LIGHT + RESOLVE + LOAD, *sorted(SAVED.glob("*.keras")))


def test_keras_may_be_imported_first(monkeypatch):
    registered = keras.saving.get_custom_objects()
    monkeypatch.delitem(registered, "tfdml>TripletLoss")
    _registration.install()
    assert registered["tfdml>TripletLoss"] is not tfdml.losses.TripletLoss
    assert registered["tfdml>CircleLoss"] is tfdml.losses.CircleLoss
    assert type(registered["tfdml>TripletLoss"]()) is tfdml.losses.TripletLoss


def test_import_of_the_package_is_light():
    run(LIGHT)


def test_stand_ins_cover_all_that_is_registered():
    for face in ("layers", "losses", "metrics", "models", "ops", "tfa"):
        module = importlib.import_module(f"tfdml.{face}")
        for name in module.__all__:  # lazy names, too
            getattr(module, name)
    registered = {
        name
        for name, thing in keras.saving.get_custom_objects().items()
        if thing.__module__.startswith("tfdml.")
        and thing.__module__ != "tfdml._registration"
        # The classes of examples in docstrings are in no module.
        and hasattr(sys.modules[thing.__module__], thing.__name__)
    }
    functions = {f"tfdml>{name}" for name in _registration._FUNCTIONS}
    assert registered <= set(_registration.class_modules()) | functions
    assert functions <= registered
    assert "tfdml>TopKPrecisionLoss" in registered
    assert "Addons>ContrastiveLoss" in registered


def test_function_loads_and_is_saved_under_its_name():
    stand_in = _registration._stand_in_function("tfdml.ops", "caption_distance")
    assert _registration.original(stand_in) is tfdml.ops.caption_distance
    assert _registration.original(len) is len
    rows = keras.ops.eye(2)
    expected = keras.ops.convert_to_numpy(tfdml.ops.caption_distance(rows, rows))
    assert (keras.ops.convert_to_numpy(stand_in(rows, rows)) == expected).all()


def test_class_made_through_its_stand_in_is_the_real_one():
    stand_in = _registration._stand_in_class("tfdml.losses", "TripletLoss")
    assert type(stand_in(0.3)) is tfdml.losses.TripletLoss
    loss = stand_in.from_config({"margin": 0.3})
    assert type(loss) is tfdml.losses.TripletLoss


def test_checkout_that_is_not_installed_has_an_unknown_version():
    code = (
        "import sys, importlib.metadata\n"
        "def missing(name): raise importlib.metadata.PackageNotFoundError(name)\n"
        "importlib.metadata.version = missing\n"
        "import tfdml\n"
        "assert 'tfdml._version' not in sys.modules\n"
        "assert tfdml.__version__ == '0+unknown'\n"
    )
    run(code)
