"""A run with averages, a late backbone and event files survives a kill, too."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tests.training.run.test_fit import RECIPE
from tests.training.run.test_resume import KILLED
from tests.training.run.test_tensorboard import read as read_events
from tfdml.models import load_embedder
from training.__main__ import main

pytestmark = [pytest.mark.backend, pytest.mark.slow]

MORE = """
head_only_steps = 10
embedding_rate = 0.5
schedule = "exponential"
decay_every = 4
decay_factor = 0.7
epsilon = 0.01
weight_decay = 0
l2_penalty = 1e-3
ema_momentum = 0.9
gradient_accumulation = 2
tensorboard = true
[loss]
name = "ProxyAnchorLoss"
[proxies]
learning_rate_multiplier = 100
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("features")
    write_shapes(root / "images", classes=10, images_per_class=4)
    recipe = RECIPE.format(images=root / "images").replace("steps = 12", "steps = 18")
    (root / "recipe.toml").write_text(recipe + MORE)
    assert main(["fit", str(root / "recipe.toml"), "--run", str(root / "whole")]) == 0
    return root


@pytest.mark.parametrize(
    ("where", "name", "count", "when"),
    [
        # In the second epoch, before the backbone learns; after it has begun to.
        ("training.run.progress:Progress", "on_train_batch_end", 8, "after"),
        ("training.run.progress:Progress", "on_train_batch_end", 15, "after"),
        # The state of the second epoch is written, its event is not.
        ("training.run.tensorboard:EventFiles", "on_epoch_end", 2, "before"),
        # All epochs are done, and the last weights saved.
        ("keras:Model", "save", 1, "after"),
    ],
)
def test_killed_run_ends_as_the_whole_one(folder, tmp_path, where, name, count, when):
    run = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, where, name, str(count), when]
    arguments = [str(folder / "recipe.toml"), "--run", str(run)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert main(["fit", *arguments]) == 0
    whole = folder / "whole"
    for file in ("embedder.keras", "last.keras"):
        received, expected = (
            load_embedder(root / file).get_weights() for root in (run, whole)
        )
        for a, b in zip(received, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    for file in ("history.json", "neighbors.json"):
        assert json.loads((run / file).read_text()) == json.loads(
            (whole / file).read_text()
        )
    assert read_events(run / "tensorboard") == read_events(whole / "tensorboard")
