"""Models and optimizers of a run, by recipe."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from tfdml.images import RandomChanges
from tfdml.layers import (
    ClassBoundaries,
    DividedEmbedding,
    HighOrderMoments,
    ImageChanges,
    Proxies,
)
from tfdml.losses import (
    ContrastiveLoss,
    HORDELoss,
    SoftTripleLoss,
    TopKPrecisionLoss,
)
from tfdml.models import LargeBatch
from training.recipe.losses import built_loss
from training.recipe.recipe import (
    Batches,
    Boundaries,
    Data,
    Embedder,
    Fit,
    Loss,
    Moments,
    Recipe,
    RecipeError,
    read_recipe,
)
from training.recipe.recipe import Proxies as ProxySettings
from training.run.build_model import build_embedder_of, build_model
from training.run.build_optimizer import VariableGroup, build_optimizer

pytestmark = [pytest.mark.backend, pytest.mark.slow]

SMALL = Embedder(image_size=8, embedding_dimension=4, widths=(4, 8))
NONE = RandomChanges()
SOFT_TRIPLE = Loss("SoftTripleLoss", {"scale": 10.0}, on_proxies=True)


def recipe(loss=None, proxies=None, changes=NONE, **fit):
    # On TensorFlow XLA would compile for longer than all else takes.
    fit["jit_compile"] = keras.backend.backend() == "jax"
    return Recipe(
        Data("nowhere"),
        SMALL,
        loss or Loss(),
        proxies or ProxySettings(),
        augmentation=changes,
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
    loss = built_loss(about.loss.name, about.loss.arguments)
    return embedder, build_model(embedder, about, num_classes, loss)


def test_model_of_a_pair_loss_is_the_embedder():
    embedder, model = built(recipe())
    assert model is embedder
    assert isinstance(model.loss, TopKPrecisionLoss)


CHANGES = RandomChanges(shift=0.2, flip=True, contrast=0.3)
losses = pytest.mark.parametrize(
    "loss", [Loss(), SOFT_TRIPLE], ids=["pairs", "proxies"]
)


def shapes(variables):
    return [(v.name, tuple(v.shape)) for v in variables]


@losses
def test_model_with_changes_has_the_variables_of_one_without_in_their_order(loss):
    """The state of a run that began before changes were in the model goes on."""
    _, plain = built(recipe(loss))
    embedder, changed = built(recipe(loss, changes=CHANGES))
    assert shapes(changed.variables) == shapes(plain.variables)
    assert shapes(changed.trainable_variables) == shapes(plain.trainable_variables)
    own = embedder.variables
    assert all(v is w for v, w in zip(changed.variables[: len(own)], own, strict=True))


@pytest.mark.parametrize(
    ("loss", "precision"), [(Loss(), "float32"), (SOFT_TRIPLE, "mixed_bfloat16")]
)
def test_step_with_changes_is_one_on_changed_images(loss, precision, batch):
    images, labels = batch
    numbers = CHANGES.numbers(seed=0, step=0, count=len(images))
    beforehand = ImageChanges(CHANGES)([images, numbers])
    settings = {"precision": precision, "head_only_steps": 1}
    _, plain = built(recipe(loss, **settings))
    _, changed = built(recipe(loss, changes=CHANGES, **settings))
    for _ in range(2):
        expected = plain.train_on_batch(beforehand, labels)
        received = changed.train_on_batch((images.astype("uint8"), numbers), labels)
        np.testing.assert_allclose(received, expected, rtol=1e-3)
    for value, other in zip(changed.variables, plain.variables, strict=True):
        np.testing.assert_allclose(value.numpy(), other.numpy(), rtol=0.01, atol=1e-4)


def test_model_of_a_proxy_loss_ends_in_proxies_that_train(batch):
    proxies = ProxySettings(
        centers_per_class=2, learning_rate_multiplier=10.0, center_penalty=0.1
    )
    embedder, model = built(recipe(SOFT_TRIPLE, proxies))
    assert isinstance(model.loss, SoftTripleLoss)
    assert tuple(model.output.shape) == (None, 4, 2)
    layer = model.layers[-1]
    assert isinstance(layer, Proxies)
    before = [layer.get_weights()[0], embedder.get_weights()[0]]
    model.fit(*batch, batch_size=16, epochs=1, verbose=0)
    assert np.any(layer.get_weights()[0] != before[0])
    assert np.any(embedder.get_weights()[0] != before[1])


@pytest.mark.slow
def test_scale_and_bias_learn_behind_the_embedder(batch):
    about = recipe(Loss("LearnedPairwiseSigmoidLoss", on_scale=True))
    embedder, model = built(about)
    layer = model.get_layer("scale_and_bias")
    assert model.layers[-1] is layer
    assert tuple(model.output.shape) == (None, 4 + 2)
    before = layer.get_weights(), embedder.get_weights()[0]
    model.fit(*batch, batch_size=16, epochs=1, verbose=0)
    assert np.all(np.array(layer.get_weights()) != before[0])
    assert np.any(embedder.get_weights()[0] != before[1])


@pytest.mark.slow
def test_proxies_of_prefixes_train_as_the_recipe_says(batch):
    arguments = {"dimensions": [2, 4]}
    about = recipe(Loss("ProxyAnchorLoss", arguments, on_proxies=True))
    embedder, model = built(about)
    assert tuple(model.output.shape) == (None, 4, 2)
    before = embedder.get_weights()[0]
    model.fit(*batch, batch_size=16, epochs=1, verbose=0)
    assert np.any(embedder.get_weights()[0] != before)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_boundaries_begin_and_step_as_the_recipe_says(optimizer, batch):
    name, arguments = "DistanceWeightedLearnedMarginLoss", {"num_classes": 4}
    steps = []
    for multiplier in (1.0, 50.0):
        about = replace(
            recipe(
                Loss(name, arguments, on_boundaries=True),
                optimizer=optimizer,
                schedule="constant",
            ),
            boundaries=Boundaries(0.9, multiplier),
        )
        embedder, model = built(about)
        layer = model.get_layer("boundaries")
        assert isinstance(layer, ClassBoundaries)
        assert tuple(embedder.output.shape) == (None, 4)
        np.testing.assert_allclose(layer.get_weights()[0], [0.9] * 4)
        model.train_on_batch(*batch)
        steps.append(layer.get_weights()[0] - np.float32(0.9))
    assert steps[0].any()
    np.testing.assert_allclose(steps[1], 50 * steps[0], rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("pooling", ["average", "average_and_max"])
@pytest.mark.parametrize("changes", [NONE, CHANGES], ids=["plain", "changes"])
def test_model_of_moments_ends_in_them_and_trains_the_embedder(pooling, changes, batch):
    about = replace(
        recipe(Loss("ContrastiveLoss"), changes=changes),
        embedder=replace(SMALL, pooling=pooling),
        moments=Moments(order=3, width=6),
    )
    keras.utils.set_random_seed(1)
    embedder = build_embedder_of(about)
    loss = HORDELoss(ContrastiveLoss(), order=3)
    model = build_model(embedder, about, 4, loss)
    assert tuple(model.output.shape) == (None, 3 * 4)
    assert isinstance(model.layers[-1], HighOrderMoments)
    images, labels = batch
    if changes:
        numbers = changes.numbers(seed=0, step=0, count=len(images))
        images = (images.astype("uint8"), numbers)
    layers = (embedder, model.layers[-1])
    before = [layer.get_weights()[0] for layer in layers]
    assert np.isfinite(model.train_on_batch(images, labels)).all()
    for layer, old in zip(layers, before, strict=True):
        assert np.any(layer.get_weights()[0] != old)


def test_model_of_an_ensemble_ends_in_its_learners(batch):
    loss = Loss("BIERLoss", {"learners": [1, 3]})
    about = recipe(loss, embedding_rate=0.0)
    about = replace(about, embedder=replace(SMALL, diversity=0.1))
    embedder, model = built(about)
    head = embedder.layers[-1]
    assert isinstance(head, DividedEmbedding)
    assert (head.learners, head.diversity) == ((1, 3), 0.1)
    before = [layer.get_weights()[0] for layer in (embedder, head)]
    model.train_on_batch(*batch)
    assert np.any(embedder.get_weights()[0] != before[0])
    # `embedding_rate` is that of the head.
    np.testing.assert_array_equal(head.get_weights()[0], before[1])


def test_model_of_attention_heads_is_googlenet_with_masks():
    about = Recipe(
        Data("nowhere"),
        Embedder(image_size=32, embedding_dimension=4, backbone="googlenet"),
        Loss("ABELoss", {"heads": 2}),
    )
    embedder, model = built(about)
    assert model is embedder
    names = [layer.name for layer in embedder.layers]
    assert names[3:] == [
        "attention",
        "masks",
        "shared",
        "pooling",
        "dense",
        "embedding",
    ]
    assert embedder.get_layer("masks").heads == model.loss.heads == 2
    with pytest.raises(RecipeError, match='`backbone` must be "googlenet"'):
        replace(about, embedder=SMALL)
    wrong = replace(about, loss=Loss("ABELoss", {"heads": 3}))
    with pytest.raises(RecipeError, match="must be a multiple of `heads`"):
        build_embedder_of(wrong)


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


def test_embedding_rate_scales_the_step_of_the_embedding_layer_alone(batch):
    whole = weights_after(recipe(optimizer="sgd"), batch, steps=1)
    tenth = weights_after(recipe(optimizer="sgd", embedding_rate=0.1), batch, steps=1)
    for (name, in_head, old, new), (*_, start, end) in zip(whole, tenth, strict=True):
        if "moving" not in name:
            share = 0.1 if in_head else 1.0
            np.testing.assert_allclose(end - start, share * (new - old), atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_proxies_step_as_often_the_rate_as_the_recipe_says(optimizer, batch):
    steps = []
    for multiplier in (1.0, 50.0):
        proxies = ProxySettings(learning_rate_multiplier=multiplier)
        fit = {"optimizer": optimizer, "schedule": "constant"}
        _, model = built(recipe(Loss("ProxyAnchorLoss", {}, True), proxies, **fit))
        before = model.get_layer("proxies").get_weights()[0]
        model.train_on_batch(*batch)
        steps.append(model.get_layer("proxies").get_weights()[0] - before)
    np.testing.assert_allclose(steps[1], 50 * steps[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("pooling", ["average", "gem"])
def test_head_alone_learns_in_the_first_steps(pooling, batch):
    about = recipe(
        Loss("ProxyAnchorLoss", {}, True), head_only_steps=2, weight_decay=0.1
    )
    about = replace(about, embedder=replace(SMALL, pooling=pooling))
    two, three = (weights_after(about, batch, steps=n) for n in (2, 3))
    assert not any(moved(two, head=False))
    assert all(moved(two, head=True))
    assert all(moved(three, head=False))
    statistics = [np.any(a != b) for name, _, a, b in two if "moving" in name]
    assert statistics
    assert all(statistics)  # as in Proxy-Anchor's code


def test_frozen_batch_normalization_stays_as_it_is(batch):
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


def test_clipped_gradient_moves_a_weight_by_the_limit():
    settings = Fit(
        optimizer="sgd",
        learning_rate=1.0,
        schedule="constant",
        clip_value=3.0,
        weight_decay=0.0,
        momentum=0.0,
    )
    weights = [keras.Variable(0.0, dtype="float32") for _ in range(2)]
    optimizer = build_optimizer(settings)
    optimizer.build(weights)
    optimizer.apply([keras.ops.cast(g, "float32") for g in (100.0, -0.5)])
    assert [float(w) for w in weights] == [-3.0, 0.5]


def naive(start, gradients, settings, rate=1.0, first_step=0):
    """PyTorch's documented update of one number, for Adam(W) and SGD."""
    w, m, v, t = start, 0.0, 0.0, 0
    for step, gradient in enumerate(gradients):
        if step < first_step:
            continue
        t += 1
        lr = settings.learning_rate * rate
        g = gradient + settings.l2_penalty * w
        w -= lr * settings.weight_decay * w
        if settings.optimizer == "sgd":
            m = settings.momentum * m + g
            w -= lr * m
            continue
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        root = np.sqrt(v / (1 - 0.999**t))
        w -= lr * m / (1 - 0.9**t) / (root + (settings.epsilon or 1e-8))
    return w


@pytest.mark.parametrize(
    "fit",
    [
        {"optimizer": "adam", "epsilon": 1.0},
        {"optimizer": "adam", "epsilon": 0.01, "l2_penalty": 0.3},
        {"optimizer": "adamw", "weight_decay": 0.3},
        {"optimizer": "sgd", "l2_penalty": 0.3},
        {"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.3},
    ],
    ids=lambda fit: "-".join(str(value) for value in fit.values()),
)
def test_steps_are_those_of_pytorch(fit):
    settings = Fit(
        learning_rate=0.1, schedule="constant", **{"weight_decay": 0.0, **fit}
    )
    gradients = np.random.default_rng(0).normal(size=6)
    plain, fast, late = (keras.Variable(2.0, dtype="float32") for _ in range(3))
    parts = [VariableGroup([fast], 3.0), VariableGroup([late], 0.5, first_step=2)]
    optimizer = build_optimizer(settings, parts)
    optimizer.build([plain, fast, late])
    for gradient in gradients:
        optimizer.apply([keras.ops.cast(gradient, "float32")] * 3)
    expected = [
        naive(2.0, gradients, settings),
        naive(2.0, gradients, settings, 3.0),
        naive(2.0, gradients, settings, 0.5, 2),
    ]
    received = [float(v) for v in (plain, fast, late)]
    np.testing.assert_allclose(received, expected, rtol=1e-4)


def test_gradients_of_parts_that_do_not_learn_yet_are_not_clipped_with_the_others():
    settings = Fit(
        optimizer="sgd",
        learning_rate=1.0,
        schedule="constant",
        clip_norm=1.0,
        weight_decay=0.0,
        momentum=0.0,
    )
    head, late = (keras.Variable(0.0, dtype="float32") for _ in range(2))
    optimizer = build_optimizer(settings, [VariableGroup([late], first_step=1)])
    optimizer.build([head, late])
    gradients = [keras.ops.cast(g, "float32") for g in (0.5, 100.0)]
    optimizer.apply(gradients)
    assert (float(head), float(late)) == (-0.5, 0.0)
    optimizer.apply(gradients)
    assert float(late) == pytest.approx(-1.0, abs=1e-4)


def test_late_part_counts_steps_not_batches_with_accumulation():
    settings = Fit(
        optimizer="adam",
        learning_rate=0.1,
        schedule="constant",
        weight_decay=0.0,
        gradient_accumulation=2,
        head_only_steps=4,
    )
    late = keras.Variable(2.0, dtype="float32")
    optimizer = build_optimizer(settings, [VariableGroup([late], first_step=4)])
    optimizer.build([late])
    gradients = np.random.default_rng(1).normal(size=8)
    for gradient in gradients:
        optimizer.apply([keras.ops.cast(gradient, "float32")])
    means = gradients.reshape(4, 2).mean(1)
    expected = naive(2.0, means, settings, first_step=2)
    assert float(late) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("fit", "rates"),
    [
        # Linear from 0 over 10 steps, then half a cosine over 90.
        ({"warmup_steps": 10}, {0: 0.0, 5: 0.5, 10: 1.0, 55: 0.5, 100: 0.0}),
        ({"warmup_steps": 10, "schedule": "constant"}, {0: 0.0, 5: 0.5, 99: 1.0}),
        ({}, {0: 1.0, 50: 0.5, 100: 0.0}),
        ({"gradient_accumulation": 4}, {0: 1.0, 50: 0.5, 100: 0.0}),
        (
            {"schedule": "steps", "decay_at": (30, 60), "decay_factor": 0.1},
            {0: 1.0, 29: 1.0, 30: 0.1, 59: 0.1, 60: 0.01, 99: 0.01},
        ),
        (
            {"schedule": "exponential", "decay_every": 10, "decay_factor": 0.94},
            {0: 1.0, 9: 1.0, 10: 0.94, 29: 0.94**2, 99: 0.94**9},
        ),
        (
            {"schedule": "inverse_time", "decay_every": 10_000},
            {0: 1.0, 99: 1 / (1 + 1e-4 * 99)},
        ),
        (
            {
                "schedule": "steps",
                "decay_at": (5, 30),
                "decay_factor": 0.5,
                "warmup_steps": 10,
            },
            {0: 0.0, 4: 0.4, 5: 0.25, 10: 0.5, 30: 0.25},
        ),
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
        (
            "[proxies]\ncenters_per_class = 2",
            "must be left out with a loss wit",
        ),
        (
            '[loss]\nname = "MarginLoss"\n[boundaries]\ninitial = 1.0',
            "boundaries. must be left out with a loss without learned boundaries",
        ),
        (
            '[loss]\nname = "LearnedMarginLoss"\nnum_classes = 5',
            "there is no key `num_classes`",
        ),
        (
            '[loss]\nname = "LearnedMarginLoss"\n[boundaries]\ninitial = 3',
            "`initial` must be from 0 to 2",
        ),
        (
            '[loss]\nname = "ProxyAnchorLoss"\n[proxies]\ncenters_per_class = 2',
            "`centers_per_class` must be 1 except with SoftTripleLoss and SubCenter",
        ),
        ('[loss]\nname = "ProxyLoss"', "there is no loss `ProxyLoss`"),
        ('[fit]\noptimizer = "lion"', "`optimizer` must be 'adamw', .* or 'sgd'"),
        ("[fit]\nclip_norm = -1", "`clip_norm` must be at least 0"),
        ("[fit]\nsteps = 10\ngradient_accumulation = 11", "from 1 to 10"),
        ('[fit]\nschedule = "steps"', "`decay_at` must be given with schedule"),
        ("[fit]\ndecay_every = 3", "`decay_every` must be left out .*'cosine'"),
        (
            '[fit]\nschedule = "steps"\ndecay_factor = 0.1\ndecay_at = [5, 5]',
            r"`decay_at` must increase, .* 1000. Received: \[5, 5\]",
        ),
        (
            '[fit]\nschedule = "steps"\ndecay_factor = 0.1\ndecay_at = [1000]',
            r"`decay_at` must increase",
        ),
        ("[fit]\nl2_penalty = 0.1", "`weight_decay` must be 0 with an `l2_penalty`"),
        ('[fit]\noptimizer = "sgd"\nepsilon = 1', "`epsilon` must be left out"),
        (
            "[fit]\nmomentum = 0.5",
            "`momentum` must be left out except with optimizer = 'sgd'",
        ),
        ("[fit]\nema_momentum = 1", "`ema_momentum` must be at least 0 and below 1"),
        (
            "[fit]\nhead_only_steps = 5\ngradient_accumulation = 2",
            "`head_only_steps` must be a multiple of `gradient_accumulation`, 2",
        ),
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


SMALL_BATCHES = Batches(images_per_class=4, classes_per_batch=4)


@pytest.mark.parametrize(
    ("changes", "loss", "moments"),
    [
        (NONE, Loss(), Moments()),
        (CHANGES, Loss(), Moments()),
        (NONE, SOFT_TRIPLE, Moments()),
        pytest.param(CHANGES, SOFT_TRIPLE, Moments(), marks=pytest.mark.full),
        pytest.param(CHANGES, Loss(), Moments(2, 8), marks=pytest.mark.full),
    ],
)
def test_chunks_train_as_the_whole_batch(changes, loss, moments, batch):
    images, labels = batch
    x = images.astype("uint8")
    if changes:
        x = (x, changes.numbers(0, 0, len(x)))
    results = []
    for chunk in (0, 4):
        about = replace(
            recipe(loss, changes=changes, freeze_batch_norm=True, clip_norm=1.0),
            batches=replace(SMALL_BATCHES, chunk=chunk),
            moments=moments,
        )
        keras.utils.set_random_seed(1)
        embedder = build_embedder_of(about)
        keras.utils.set_random_seed(2)
        of_recipe = built_loss(loss.name, loss.arguments)
        if moments.order > 1:
            of_recipe = HORDELoss(of_recipe, order=moments.order)
        model = build_model(embedder, about, 4, of_recipe)
        is_divided = any(isinstance(x, LargeBatch) for x in model._flatten_layers())
        assert is_divided is bool(chunk)
        value = model.train_on_batch(x, labels)
        results.append([np.ravel(value)[:1], *embedder.get_weights()])
    for received, expected in zip(*results[::-1], strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-3, atol=2e-5)
