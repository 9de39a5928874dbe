import shutil
from pathlib import Path

import numpy as np
import pytest

from serving.endpoint.models.saved_model import (
    find_model_version,
    find_version_folders,
    folder_stamp,
    model_fingerprint,
)
from tests.support.search_fixtures import (
    DIMENSION,
    SIZE,
    quarter_colors,
    write_color_model,
)
from tfdml.export import SavedEmbedder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    base = tmp_path_factory.mktemp("models") / "colors"
    write_color_model(base / "1")
    return base


def test_a_loaded_model_embeds_pixels(model):
    embedder = SavedEmbedder(model / "1")
    assert embedder.image_size == SIZE
    shape = (3, SIZE, SIZE, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    rows = embedder.embed(pixels)
    assert rows.shape == (3, DIMENSION)
    assert rows.dtype == np.float32
    expected = [quarter_colors(image) for image in pixels]
    np.testing.assert_allclose(rows, expected, atol=2e-6)


def test_the_highest_version_is_taken_as_a_number(tmp_path):
    for version in ("2", "10", "new", "11"):
        (tmp_path / "m" / version).mkdir(parents=True)
    for version in ("2", "10", "new"):
        (tmp_path / "m" / version / "saved_model.pb").touch()
    found = find_model_version(tmp_path / "m")
    assert (found.name, found.version) == ("m", 10)
    assert find_model_version(tmp_path / "m" / "2").version == 2


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="`model` must hold an exported model"):
        find_model_version(tmp_path)
    with pytest.raises(FileNotFoundError, match="`folder` must hold a SavedModel"):
        model_fingerprint(tmp_path)


def test_a_fingerprint_follows_graph_and_weights_and_nothing_else(model, tmp_path):
    original = model_fingerprint(model / "1")
    copy = Path(shutil.copytree(model / "1", tmp_path / "elsewhere" / "7"))
    (copy / "assets.extra").mkdir()
    (copy / "assets.extra" / "warmup").touch()
    assert model_fingerprint(copy) == original
    weights = copy / "variables" / "variables.data-00000-of-00001"
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    assert model_fingerprint(copy) != original


def test_a_model_without_the_signature_for_pixels_is_refused(tmp_path):
    import tensorflow as tf

    class Other(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
        def __call__(self, x):
            return {"embedding": x}

    module = Other()
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.__call__)
    with pytest.raises(ValueError, match=r"no signature `tensors`.*tfdml export"):
        SavedEmbedder(tmp_path / "1")
    signatures = {"tensors": module.__call__}
    tf.saved_model.save(module, str(tmp_path / "2"), signatures=signatures)
    with pytest.raises(ValueError, match="must take `images`"):
        SavedEmbedder(tmp_path / "2")


def test_a_damaged_model_is_refused(model, tmp_path):
    copy = Path(shutil.copytree(model / "1", tmp_path / "1"))
    (copy / "saved_model.pb").write_bytes(b"\x0fno model")
    with pytest.raises(ValueError, match="cannot be loaded"):
        SavedEmbedder(copy)


def test_names_that_are_no_numbers_are_no_versions(tmp_path):
    for name in ("1", "007", "7", "-2", "1.5", "new", "٣", str(2**63), str(2**63 - 1)):
        (tmp_path / name).mkdir()
    (tmp_path / "5").touch()
    assert find_version_folders(tmp_path) == {
        1: tmp_path / "1",
        7: tmp_path / "7",
        2**63 - 1: tmp_path / str(2**63 - 1),
    }
    with pytest.raises(FileNotFoundError):
        find_version_folders(tmp_path / "none")


def test_the_stamp_of_a_folder_follows_each_change(tmp_path):
    (tmp_path / "variables").mkdir()
    file = tmp_path / "variables" / "data"
    file.write_bytes(b"a")
    stamp = folder_stamp(tmp_path)
    assert folder_stamp(tmp_path) == stamp
    file.with_name("index").touch()
    assert folder_stamp(tmp_path) != stamp
    file.with_name("index").unlink()
    assert folder_stamp(tmp_path) == stamp
    file.write_bytes(b"ab")
    assert folder_stamp(tmp_path) != stamp
