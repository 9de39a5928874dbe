"""The command `export --format`: one file for another runtime, and its description."""

import json

import keras
import numpy as np
import pytest

from serving.__main__ import main
from tests.support.search_fixtures import calibration_at
from tfdml.run_calibration import write_calibration

pytestmark = pytest.mark.slow

SIZE = 8


@pytest.fixture
def run(tmp_path):
    """A run folder with an embedder that saw the middle of images."""
    keras.utils.set_random_seed(3)
    folder = tmp_path / "run"
    folder.mkdir()
    inputs = keras.Input((SIZE, SIZE, 3))
    rows = keras.layers.Dense(4)(keras.layers.Flatten()(inputs))
    keras.Model(inputs, rows).save(folder / "embedder.keras")
    recipe = {"images": {"resize": 10, "pad": False}}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def test_a_run_becomes_a_file_that_says_what_it_is(run, tmp_path, capsys):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx`")
    write_calibration(run / "embedder.keras", calibration_at(0.5))
    file = tmp_path / "shapes.onnx"
    assert main(["export", str(run), str(file), "--format", "onnx"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(
        f"Exported {run / 'embedder.keras'} to {file} (0.0 MB)"
    )
    assert "warning" not in printed.err
    about = json.loads((tmp_path / "shapes.onnx.json").read_text("utf-8"))
    assert about["preprocessing"]["config"]["resize"] == 10
    assert about["calibration"]["threshold"] == 0.5
    assert about["source"]["run"] == "run"
    session = onnxruntime.InferenceSession(
        str(file), providers=["CPUExecutionProvider"]
    )
    images = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), "uint8")
    (rows,) = session.run(["embedding"], {"images": images})
    assert rows.shape == (2, 4)
    assert main(["export", str(run), str(file), "--format", "onnx"]) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "x/1", "--format", "onnx"], "must end in .onnx"),
        (["RUN", "x.onnx", "--format", "litert"], "must end in .tflite"),
        (
            ["RUN", "x.onnx", "--format", "onnx", "--output-dtype", "int8"],
            "--output-dtype must not be given with --format onnx",
        ),
        (
            ["RUN", "x.onnx", "--format", "onnx", "--warm-up", "images"],
            "--warm-up must not be given with --format onnx",
        ),
        (["nowhere", "x.onnx", "--format", "onnx"], "no trained embedder at nowhere"),
        (["RUN", "x.onnx"], "must end with a version number"),
    ],
)
def test_mistakes_are_named(run, arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [str(run) if word == "RUN" else word for word in arguments]
    assert main(["export", *words]) == 1
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
