"""Training runs of seconds, which several tests share."""

from pathlib import Path

import keras
import pytest

from tests.support.small_images import write_shapes
from training.__main__ import main

# On TensorFlow XLA compiles for longer than all else takes; on JAX without it every
# operation runs by itself.
JIT = "true" if keras.backend.backend() == "jax" else "false"

RECIPE = f"""
[data]
images = "{{images}}"
test_fraction = 0.3
validation_fraction = 0.2
[embedder]
image_size = 16
embedding_dimension = 16
widths = [8, 16]
pooling = "flatten"
[batches]
images_per_class = 3
classes_per_batch = 4
[augmentation]
shift = 0.1
[fit]
steps = 12
steps_per_epoch = 6
learning_rate = 0.003
jit_compile = {JIT}
"""


def fit(recipe: Path, run: Path, *more: str) -> int:
    """Train by a recipe into a run folder, and return the exit code."""
    return main(["fit", str(recipe), "--run", str(run), *more])


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `images` of ten classes and a `recipe.toml` for them."""
    root = tmp_path_factory.mktemp("shapes")
    write_shapes(root / "images", classes=10, images_per_class=4)
    (root / "recipe.toml").write_text(RECIPE.format(images=root / "images"))
    return root


@pytest.fixture(scope="session")
def finished_run(shapes: Path) -> Path:
    """Return the run folder of that recipe, which no test changes."""
    assert fit(shapes / "recipe.toml", shapes / "run") == 0
    return shapes / "run"
