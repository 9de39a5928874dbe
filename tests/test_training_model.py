"""Models and optimisers of a run, by recipe."""

import keras
import numpy as np
import pytest

from tfdml.losses import SoftTripleLoss, TopKPrecisionLoss
from tfdml.proxies import Proxies
from training.model import build_embedder_of, build_model
from training.optimizers import build_optimizer
from training.recipe import Data, Embedder, Fit, Loss, Recipe, RecipeError, read_recipe
from training.recipe import Proxies as ProxySettings

pytestmark = pytest.mark.backend

SMALL = Embedder(image_size=8, embedding_dimension=4, widths=(4, 8))
SOFT_TRIPLE = Loss("SoftTripleLoss", {"scale": 10.0}, on_proxies=True)


def recipe(loss=None, proxies=None, **fit):
    return Recipe(
        Data("nowhere"),
        SMALL,
        loss or Loss(),
        proxies or ProxySettings(),
        fit=Fit(steps=20, steps_per_epoch=20, **{"weight_decay": 0.0, **fit}),
    )


@pytest.fixture
def batch():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 4)
    return generator.integers(0, 256, (16, 8, 8, 3)).astype("float32"), labels


def built(about, num_classes=4):
    keras.utils.set_random_seed(1)
    embedder = build_embedder_of(about)
    return embedder, build_model(embedder, about, num_classes)


def test_model_of_a_pair_loss_is_the_embedder():
    embedder, model = built(recipe())
    assert model is embedder
    assert isinstance(model.loss, TopKPrecisionLoss)


def test_model_of_a_proxy_loss_ends_in_proxies_that_train(batch):
    proxies = ProxySettings(
        centers_per_class=2, learning_rate_multiplier=10.0, center_penalty=0.1
    )
    embedder, model = built(recipe(SOFT_TRIPLE, proxies))
    assert isinstance(model.loss, SoftTripleLoss)
    assert tuple(model.output.shape) == (None, 4, 2)
    layer = model.layers[-1]
    assert isinstance(layer, Proxies)
    assert layer.learning_rate_multiplier == 10.0
    before = [layer.get_weights()[0], embedder.get_weights()[0]]
    model.fit(*batch, batch_size=16, epochs=1, verbose=0)
    assert np.any(layer.get_weights()[0] != before[0])
    assert np.any(embedder.get_weights()[0] != before[1])


def weights_after(about, batch, steps=4):
    """All weights as (path below the layer, in the head?, before, after)."""
    embedder, model = built(about)
    head = {id(v) for v in embedder.get_layer("dense").variables}
    before = [keras.ops.convert_to_numpy(v) for v in embedder.variables]
    for _ in range(steps):
        model.train_on_batch(*batch)
    return [
        (v.name, id(v) in head, old, keras.ops.convert_to_numpy(v))
        for v, old in zip(embedder.variables, before, strict=True)
        if "seed" not in v.name
    ]


def moved(weights, *, head):
    return [
        np.any(old != new)
        for name, in_head, old, new in weights
        if in_head == head and "moving" not in name
    ]


def test_backbone_rate_zero_trains_the_head_alone(batch):
    weights = weights_after(recipe(backbone_rate=0.0, weight_decay=0.1), batch)
    assert not any(moved(weights, head=False))
    assert any(moved(weights, head=True))


def test_backbone_rate_scales_the_step(batch):
    whole = weights_after(recipe(optimizer="sgd"), batch, steps=1)
    tenth = weights_after(recipe(optimizer="sgd", backbone_rate=0.1), batch, steps=1)
    for (name, in_head, old, new), (*_, start, end) in zip(whole, tenth, strict=True):
        if "moving" not in name:
            share = 1.0 if in_head else 0.1
            np.testing.assert_allclose(end - start, share * (new - old), atol=1e-6)


def test_frozen_batch_normalisation_stays_as_it_is(batch):
    frozen = weights_after(recipe(freeze_batch_norm=True), batch)
    free = weights_after(recipe(), batch)
    norms = [
        (np.array_equal(old, new), np.array_equal(start, end))
        for (name, _, old, new), (*_, start, end) in zip(frozen, free, strict=True)
        if "moving" in name or "gamma" in name
    ]
    assert norms
    assert all(stays and not goes for stays, goes in norms)


def test_accumulated_gradients_make_a_step_every_so_many_batches(batch):
    about = recipe(gradient_accumulation=3)
    two, three = (weights_after(about, batch, steps=n) for n in (2, 3))
    assert not any(moved(two, head=True))
    assert any(moved(three, head=True))


@pytest.mark.parametrize("loss", [Loss(), SOFT_TRIPLE], ids=["pairs", "proxies"])
def test_half_precision_scales_the_loss_whatever_its_kind(loss, batch):
    about = recipe(loss, precision="mixed_float16")
    _, model = built(about)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    history = model.fit(*batch, batch_size=16, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("kind", ["adamw", "adam", "rmsprop", "sgd"])
def test_gradients_are_clipped(kind):
    clipped = build_optimizer(Fit(optimizer=kind, clip_norm=2.0), [])
    assert clipped.global_clipnorm == 2.0
    assert build_optimizer(Fit(optimizer=kind, clip_value=3.0), []).clipvalue == 3.0
    assert build_optimizer(Fit(optimizer=kind), []).global_clipnorm is None


@pytest.mark.parametrize(
    ("fit", "rates"),
    [
        # Linear from 0 over 10 steps, then half a cosine over 90.
        ({"warmup_steps": 10}, {0: 0.0, 5: 0.5, 10: 1.0, 55: 0.5, 100: 0.0}),
        ({"warmup_steps": 10, "schedule": "constant"}, {0: 0.0, 5: 0.5, 99: 1.0}),
        ({}, {0: 1.0, 50: 0.5, 100: 0.0}),
        ({"gradient_accumulation": 4}, {0: 1.0, 50: 0.5, 100: 0.0}),
    ],
)
def test_schedule(fit, rates):
    settings = Fit(steps=100, learning_rate=1.0, **fit)
    optimizer = build_optimizer(settings, [])
    for step, rate in rates.items():
        optimizer.variables[0].assign(step)  # counts batches
        assert float(optimizer.learning_rate) == pytest.approx(rate, abs=1e-6)


def test_constant_rate_without_warm_up():
    optimizer = build_optimizer(Fit(schedule="constant", learning_rate=0.3), [])
    optimizer.iterations.assign(900)
    assert float(optimizer.learning_rate) == pytest.approx(0.3)


def test_policy_of_the_session_is_left_as_it_was():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        build_embedder_of(recipe())
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[proxies]\ncenters_per_class = 2", "goes with a loss on proxies alone"),
        (
            '[loss]\nname = "ProxyAnchorLoss"\n[proxies]\ncenters_per_class = 2',
            "`centers_per_class` must be 1 except with SoftTripleLoss",
        ),
        ('[loss]\nname = "ProxyLoss"', "there is no loss `ProxyLoss`"),
        ('[fit]\noptimizer = "lion"', "`optimizer` must be 'adamw', .* or 'sgd'"),
        ("[fit]\nclip_norm = -1", "`clip_norm` must be at least 0"),
        ("[fit]\nsteps = 10\ngradient_accumulation = 11", "from 1 to 10"),
        ("[proxies]\nlearning_rate_multiplier = 0", "must be above 0 and finite"),
    ],
)
def test_impossible_settings_are_refused(text, message, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(f'[data]\nimages = "x"\n{text}\n')
    with pytest.raises(RecipeError, match=message):
        read_recipe(path)


def test_recipe_of_a_proxy_loss_is_read(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[data]\nimages = "x"\n[loss]\nname = "ProxyAnchorLoss"\nscale = 16\n'
        "[proxies]\nlearning_rate_multiplier = 100\n"
    )
    read = read_recipe(path)
    assert read.loss.on_proxies
    assert read.proxies.learning_rate_multiplier == 100.0
