"""A run with averages, a late backbone and event files can be interrupted, too."""

import pytest

from tests.support.small_images import write_shapes
from tests.support.training_runs import RECIPE, fit
from tests.training.run.test_resume import assert_same_run, stop_fit
from tests.training.run.test_tensorboard import read as read_events

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
    assert fit(root / "recipe.toml", root / "whole") == 0
    return root


@pytest.mark.parametrize(
    ("where", "name", "count", "when"),
    [
        # Before the backbone learns; the event of the first epoch is not written.
        ("training.run.tensorboard:EventFiles", "on_epoch_end", 1, "before"),
        # In the third epoch, when the backbone has begun to learn.
        ("training.run.progress:Progress", "on_train_batch_end", 15, "after"),
        # All epochs are done, and the last weights saved.
        pytest.param("keras:Model", "save", 1, "after", marks=pytest.mark.full),
    ],
)
def test_interrupted_run_ends_as_the_whole_one(
    folder, tmp_path, where, name, count, when
):
    run = tmp_path / "run"
    stop_fit(folder / "recipe.toml", run, where, name, count, when)
    assert fit(folder / "recipe.toml", run) == 0
    assert_same_run(run, folder / "whole")
    events = read_events(run / "tensorboard")
    assert events == read_events(folder / "whole/tensorboard")
