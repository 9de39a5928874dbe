"""TensorBoard reads back what a run wrote."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image

from training.recipe.recipe import RecipeError
from training.run.tensorboard import EventFiles, write_projector

HISTORY = {"loss": [3.0, 2.0, 1.0], "val_map_at_r": [0.1, 0.2, 0.3]}


def written(folder, progress, epochs):
    files = EventFiles(folder, 5, progress)
    files.on_train_begin()
    for epoch in epochs:
        files.on_epoch_end(epoch, {name: v[epoch] for name, v in HISTORY.items()})
    files.on_train_end()


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def same(events, epochs):
    return events == {
        "train/loss": [(5 * n, pytest.approx(4.0 - n)) for n in epochs],
        "validation/map_at_r": [(5 * n, pytest.approx(0.1 * n)) for n in epochs],
    }


def test_values_stand_at_the_steps_of_their_epochs(tmp_path):
    written(
        tmp_path, SimpleNamespace(epochs_done=0, steps_done=99, history={}), range(3)
    )
    assert same(read(tmp_path), (1, 2, 3))


def test_run_that_goes_on_writes_no_epoch_twice_and_leaves_none_out(tmp_path):
    # Killed after the event of epoch 2 was written, but not its state.
    written(
        tmp_path, SimpleNamespace(epochs_done=0, steps_done=99, history={}), range(2)
    )
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / "events.out.tfevents.1.host")
    first = {name: values[:1] for name, values in HISTORY.items()}
    written(
        tmp_path,
        SimpleNamespace(epochs_done=1, steps_done=99, history=first),
        range(1, 3),
    )
    assert same(read(tmp_path), (1, 2, 3))
    assert len(list(tmp_path.iterdir())) == 1


def test_missing_tensorboardx_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(RecipeError, match="needs the package tensorboardX"):
        EventFiles(tmp_path, 5, SimpleNamespace())


def test_projector_has_a_row_and_an_image_for_each_embedding(tmp_path):
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    embeddings = np.arange(15, dtype="float32").reshape(5, 3) / 7
    rows = [(f"class\t{i}", f"folder/{i}.png") for i in range(5)]
    colors = [(40 * i, 0, 200) for i in range(5)]
    write_projector(
        tmp_path,
        embeddings,
        rows,
        lambda i: np.full((16, 16, 3), colors[i], dtype="uint8"),
    )
    config = text_format.Parse(
        (tmp_path / "projector_config.pbtxt").read_text(), ProjectorConfig()
    ).embeddings[0]
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / config.tensor_path), embeddings, rtol=1e-5
    )
    lines = (tmp_path / config.metadata_path).read_text().splitlines()
    assert lines[0] == "class\tpath"
    assert lines[1:] == [f"class {i}\tfolder/{i}.png" for i in range(5)]
    width, height = config.sprite.single_image_dim
    with Image.open(tmp_path / config.sprite.image_path) as sprite:
        # As the projector cuts it: 3 columns for 5 images.
        assert sprite.size == (3 * width, 3 * height)
        for i in range(5):
            middle = ((i % 3) * width + width // 2, (i // 3) * height + height // 2)
            assert sprite.getpixel(middle) == colors[i]


def test_projector_of_many_embeddings_has_an_even_part_of_them(tmp_path):
    embeddings = np.arange(100.0)[:, np.newaxis].repeat(2, 1)
    rows = [("a", str(i)) for i in range(100)]
    image = np.zeros((4, 4, 3), "uint8")
    write_projector(tmp_path, embeddings, rows, lambda i: image, at_most=12)
    kept = np.loadtxt(tmp_path / "tensors.tsv")[:, 0]
    assert kept.tolist() == [int(99 / 11 * i) for i in range(12)]
    names = (tmp_path / "metadata.tsv").read_text().splitlines()[1:]
    assert [float(name.split("\t")[1]) for name in names] == kept.tolist()
