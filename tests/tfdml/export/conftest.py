"""A small embedder, exported once for all tests of the package."""

import keras
import pytest
import tensorflow as tf

from tests.support.encoded_images import SIZE
from tfdml.export import export_embedder
from tfdml.models import build_embedder


@pytest.fixture(scope="package")
def exported(tmp_path_factory):
    """Return the folder, the embedder, and the exported model that was loaded."""
    keras.utils.set_random_seed(3)
    folder = tmp_path_factory.mktemp("export")
    embedder = build_embedder(SIZE, 8, widths=(8, 16), pooling="flatten")
    embedder.save(folder / "embedder.keras")
    export_embedder(embedder, folder / "model" / "1")
    return folder, embedder, tf.saved_model.load(folder / "model" / "1")
