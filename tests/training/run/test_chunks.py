"""A run with `chunk` in its recipe trains as one without."""

import keras
import numpy as np
import pytest

from tests.support.training_runs import fit

pytestmark = pytest.mark.slow


def test_run_in_chunks_ends_with_the_weights_of_whole_batches(shapes, tmp_path):
    weights = []
    for chunk in (0, 4):
        settings = (f"batches.chunk={chunk}", "fit.freeze_batch_norm=true")
        more = [word for setting in settings for word in ("--set", setting)]
        assert fit(shapes / "recipe.toml", tmp_path / str(chunk), *more) == 0
        embedder = keras.saving.load_model(tmp_path / str(chunk) / "last.keras")
        weights.append(embedder.get_weights())
    for received, expected in zip(*weights[::-1], strict=True):
        # AdamW takes a step of the rate from the smallest gradient, of either sign.
        np.testing.assert_allclose(received, expected, atol=2e-3)


def test_chunk_that_fewer_classes_do_not_fill_is_refused(shapes, tmp_path, capsys):
    more = ["--set", "batches.classes_per_batch=8", "--set", "batches.chunk=8"]
    assert fit(shapes / "recipe.toml", tmp_path / "run", *more) == 1
    message = "[batches]: `chunk` must be 0, or at most the batch of 15 images"
    assert message in capsys.readouterr().err
