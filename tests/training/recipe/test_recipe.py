"""Recipes: what is read, and what is refused."""

import copy
import math

import keras
import numpy as np
import pytest

from tests.support.image_files import ENCODINGS
from tests.support.shipped_recipes import FILES, FOLDER, recipes_of
from training.recipe.fit_table import Fit
from training.recipe.recipe import RecipeError, read_recipe, recipe_of


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_recipe_is_read_as_editors_write_it(encoding, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(ENCODINGS[encoding]('[data]\r\nimages = "Äpfel"\r\n'))
    assert read_recipe(path).data.images == "Äpfel"


def test_recipe_that_is_no_toml_is_told(write, tmp_path):
    with pytest.raises(RecipeError, match=r"not valid TOML.*Write paths with /"):
        read_recipe(write('[data]\nimages = "C:\\photos"\n'))
    (tmp_path / "latin.toml").write_bytes(b'[data]\nimages = "\xc4pfel"\n')
    with pytest.raises(RecipeError, match=r"latin\.toml, line 2: not UTF-8"):
        read_recipe(tmp_path / "latin.toml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_recipes_that_come_along_are_valid(path):
    own = ("residual", "bn_inception", "googlenet", "resnet34")
    for variant, recipe in recipes_of(path).items():
        backbone = recipe.embedder.backbone
        assert backbone in own or hasattr(keras.applications, backbone), variant
    command = f"training/recipes/{path.relative_to(FOLDER).as_posix()}"
    assert command in path.read_text("utf-8")


# Loss, its arguments, batch and learning rate, from the papers and their code.
PUBLISHED = {
    ("topk_precision", "cub/densenet201/topk"): (
        *("TopKPrecisionLoss", {"k": 5, "margin": 0.1}, 64, 1e-3),
    ),
    ("topk_precision", "sop/bn_inception/topk"): (
        *("TopKPrecisionLoss", {"k": 5, "margin": 0.1}, 64, 1e-3),
    ),
    ("topk_precision", "cars/bn_inception/semi_hard"): (
        *("SemiHardTripletLoss", {"distance": "cosine", "margin": 0.1}, 64, 1e-3),
    ),
    ("proxy_anchor", "cars/bn_inception/512/multi_similarity"): (
        "MultiSimilarityLoss",
        {"positive_scale": 2, "negative_scale": 40, "threshold": 0.5, "epsilon": 0.1},
        80,
        3e-5,
    ),
    ("multi_similarity", "sop/1000"): (
        "MultiSimilarityLoss",
        {"positive_scale": 2, "negative_scale": 40, "threshold": 0.5, "epsilon": 0.1},
        1000,
        1e-5,
    ),
    ("proxy_anchor", "cub/bn_inception/512/proxy_anchor"): (
        *("ProxyAnchorLoss", {"scale": 32, "margin": 0.1}, 180, 1e-4),
    ),
    ("proxy_anchor", "sop/bn_inception/64/proxy_anchor"): (
        *("ProxyAnchorLoss", {"scale": 32, "margin": 0.1}, 180, 6e-4),
    ),
    ("proxy_anchor", "cars/resnet101/512/proxy_anchor"): (
        *("ProxyAnchorLoss", {"scale": 32, "margin": 0.1}, 120, 1e-4),
    ),
    ("proxy_anchor", "cub/bn_inception/64/proxy_nca"): (
        "ProxyNCALoss",
        {"scale": 3, "include_positive": True, "smoothing": 0.1},
        32,
        0.045,
    ),
    ("proxy_anchor", "cub/bn_inception/512/soft_triple"): (
        *("SoftTripleLoss", {"scale": 20, "temperature": 0.1, "margin": 0.01}),
        *(32, 1e-4),
    ),
    ("proxy_anchor", "sop/resnet50/128/margin"): (
        *("DistanceWeightedLearnedMarginLoss", {"alpha": 0.2}, 70, 1e-4),
    ),
    ("weighted_contrastive", "cub/balanced/is"): (
        "BalancedContrastiveLoss",
        {"balance": 256, "margin": 4, "normalize": False, "power": 1},
        64,
        1e-4,
    ),
    ("weighted_contrastive", "cub/balanced/random_0.9"): (
        "BalancedContrastiveLoss",
        {"balance": 256, "margin": 4, "normalize": False, "power": 0},
        4032,
        1e-4,
    ),
    ("log_ratio", "mpii/log_ratio/128"): ("LogRatioLoss", {}, 150, 1e-2),
}


@pytest.mark.parametrize("name", PUBLISHED, ids=lambda name: name[1])
def test_published_recipe_has_the_published_settings(name):
    paper, variant = name
    recipe = recipes_of(FOLDER / "papers" / f"{paper}.toml")[variant]
    loss, arguments, size, rate = PUBLISHED[name]
    assert (recipe.loss.name, recipe.loss.arguments) == (loss, arguments)
    batches = recipe.batches
    if batches.design == "groups":
        assert batches.images_per_class * batches.classes_per_batch == size
    else:
        assert batches.batch_size == size
    assert recipe.fit.learning_rate == rate


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("papers/balanced_contrastive_cub", "squared_euclidean"),
        ("papers/balanced_contrastive_cars", "squared_euclidean"),
        ("papers/balanced_contrastive_sop", "squared_euclidean"),
        ("papers/log_ratio_mpii", "squared_euclidean"),
        ("small/pose_log_ratio", "squared_euclidean"),
        ("papers/topk_cub_densenet", "cosine"),
        ("papers/margin_cub", "cosine"),
        ("demo", "cosine"),
    ],
)
def test_recipe_keeps_lengths_where_its_paper_does(name, metric):
    recipe = read_recipe(FOLDER / f"{name}.toml")
    assert recipe.embedder.metric == metric


def test_recipe_with_the_old_names_is_read(write):
    recipe = read_recipe(
        write(
            '[data]\nimages = "x"\n[pictures]\nresize = 80\n'
            "[augmentation]\ngreyscale = 0.25\n"
        )
    )
    assert recipe.images.resize == 80
    assert recipe.augmentation.grayscale == 0.25


def test_values_arrive_with_their_types(write):
    recipe = read_recipe(
        write(
            '[data]\nimages = "x"\ntest_fraction = 0\n'
            "[embedder]\nwidths = [8, 16]\n"
            '[loss]\nname = "TopKPrecisionLoss"\nk = 3\nmargin = 0.2\n'
        )
    )
    assert recipe.data.test_fraction == 0.0
    assert recipe.embedder.widths == (8, 16)
    assert recipe.loss.arguments == {"k": 3, "margin": 0.2}
    assert recipe.fit.steps == 1000


def test_run_shorter_than_an_epoch_is_one_epoch(write):
    settings = read_recipe(write("[data]\nimages = 'x'\n[fit]\nsteps = 7\n")).fit
    assert (settings.epochs, settings.epoch_steps) == (1, 7)


def test_minutes_take_the_place_of_steps(write):
    text = "[data]\nimages = 'x'\n[fit]\nminutes = 4\nwarmup_steps = 5000\n"
    settings = read_recipe(write(text)).fit
    assert settings.minutes == 4.0
    assert (settings.epochs, settings.epoch_steps) == (None, 100)
    assert settings.with_minutes(15).minutes == 15.0
    short = settings.with_steps(7)
    assert (short.minutes, short.steps, short.warmup_steps) == (0.0, 7, 6)
    longer = Fit(steps=20, steps_per_epoch=10).with_minutes(0.5)
    assert (longer.minutes, longer.epoch_steps) == (0.5, 10)


def test_places_of_a_plan_in_minutes_have_no_end(write):
    plan = Fit(minutes=1, schedule="steps", decay_at=(900, 9000), decay_factor=0.1)
    assert plan.with_steps(1000).decay_at == (900, 999)


def test_manifest_may_bring_the_classes_that_patience_waits_on(write):
    recipe = read_recipe(
        write("[data]\nimages = 'x.csv'\nvalidation_fraction = 0\n[fit]\npatience = 2")
    )
    assert recipe.fit.patience == 2


def test_images_can_be_given_beside_the_recipe(write):
    assert read_recipe(write("[fit]\nsteps = 1\n"), images="y").data.images == "y"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data", "not valid TOML"),
        ("[fit]\nsteps = 5", r"the table \[data\] with `images`"),
        ("[data]\n", "`images` must be given"),
        ("[data]\nimages = 'x'\n[fitt]", "no table `fitt`. Did you mean `fit`?"),
        (
            "[data]\nimages = 'x'\n[fit]\nlearning_rat = 1.0",
            r"\[fit\]: there is no key `learning_rat`. Did you mean `learning_rate`?",
        ),
        ("[data]\nimages = 'x'\n[loss]\nmargn = 0.1", "Did you mean `margin`?"),
        (
            "[data]\nimages = 'x'\n[loss]\nname = 'TopkPrecision'",
            "no loss `TopkPrecision`. Did you mean `TopKPrecisionLoss`?",
        ),
        ("[data]\nimages = 'x'\n[loss]\nk = 0", r"\[loss\]: `k` must be .*k=0"),
        ("[data]\nimages = 'x'\n[loss]\nmargin = -1", "`margin` must be at least 0"),
        ("[data]\nimages = 3", "`images` must be a text in quotes. Received: 3"),
        ("[data]\nimages = 'x'\n[fit]\nsteps = 1.5", "`steps` must be a whole number"),
        ("[data]\nimages = 'x'\n[fit]\nsteps = 0", "`steps` must be at least 1"),
        ("[data]\nimages = 'x'\n[fit]\nsteps = true", "`steps` must be a whole number"),
        ("[data]\nimages = 'x'\n[fit]\nlearning_rate = 0", "must be above 0"),
        ("[data]\nimages = 'x'\n[fit]\nprecision = 'half'", "`precision` must be"),
        ("[data]\nimages = 'x'\ntest_fraction = 1.5", "from 0 to 1. Received: 1.5"),
        (
            "[data]\nimages = 'x'\ntest_fraction = 0.9\nvalidation_fraction = 0.1",
            "must be below 1",
        ),
        (
            "[data]\nimages = 'x'\n[batches]\nimages_per_class = 1",
            "`images_per_class` must be at least 2. Received: 1",
        ),
        (
            "[data]\nimages = 'x'\n[batches]\nclasses_per_batch = 1",
            "`classes_per_batch` must be at least 2. Received: 1",
        ),
        (
            "[data]\nimages = 'x'\n[batches]\nchunk = 60",
            r"\[batches\]: `chunk` must be 0, or at most the batch of 64 images and "
            "divide it. Received: 60",
        ),
        (
            "[data]\nimages = 'x'\n[batches]\ndesign = 'shuffled'\nchunk = 128",
            "`chunk` must be 0, or at most the batch of 64 images",
        ),
        ("[data]\nimages = ''", "`images` must name a folder"),
        ("[data]\nimages = 'x'\n[augmentation]\nzoom = 1", "`zoom` must be below 1"),
        (
            "[data]\nimages = 'x'\n[fit]\nsteps = 150",
            "`steps` must be a multiple of `steps_per_epoch`, 100. Received: 150",
        ),
        (
            "[data]\nimages = 'x'\n[fit]\nsteps = 10\nwarmup_steps = 10",
            "`warmup_steps` must be from 0 to 9. Received: 10",
        ),
        (
            "[data]\nimages = 'x'\n[fit]\nsteps = 10\nminutes = 4",
            "`steps` must be left out with `minutes`. Received: 10 steps and 4 minutes",
        ),
        ("[data]\nimages = 'x'\n[fit]\nminutes = -1", "`minutes` must be at least 0"),
        ("[data]\nimages = 'x'\n[fit]\nminutes = inf", "`minutes` must be at least 0"),
        (
            "[data]\nimages = 'x'\n[fit]\nminutes = 1\nschedule = 'steps'\n"
            "decay_factor = 0.1\ndecay_at = [5, 5]",
            r"`decay_at` must increase, from at least 1\. Received: \[5, 5\]",
        ),
        ("[data]\nimages = 'x'\n[fit]\nlearning_rate = inf", "must be above 0 and"),
        ("[data]\nimages = 'x'\n[fit]\nweight_decay = inf", "must be at least 0. Rec"),
        ("[data]\nimages = 'x'\n[fit]\nseed = 4294967296", "`seed` must be from 0 to"),
        (
            "[data]\nimages = 'x'\n[fit]\npatience = 2\nkeep = 'last'",
            "`patience` must be 0 with keep = 'last', which has no best epoch. "
            "Received: 2.",
        ),
        (
            "[data]\nimages = 'x'\nvalidation_fraction = 0\n[fit]\npatience = 2",
            "`patience` must be 0 without validation classes",
        ),
        (
            "[data]\nimages = 'x'\n[loss]\nname = 'precision_loss'",
            "no loss `precision_loss`",
        ),
        ("[data]\nimages = 'x'\n[embedder]\nwidths = 8", "`widths` must be a list"),
        (
            "[data]\nimages = 'x'\n[images]\ncrop = 'position'",
            r'\[images\]: `crop` = "position" needs a `resize`',
        ),
        (
            "[data]\nimages = 'x'\n[loss]\nname = 'LogRatioLoss'\nlabel_distance = ''",
            "`label_distance` must be 'squared_euclidean'",
        ),
        ("data = 3", r"`data` must be a table, written \[data\]"),
        (
            "[data]\nimages = 'x'\n[embedder]\nlora_rank = 4",
            r"\[embedder\]: `lora_rank` goes with `tuning` = \"lora\"\. Received: 4",
        ),
        (
            "[data]\nimages = 'x'\n[embedder]\ntuning = 'frozen'\n"
            "[fit]\nlayer_decay = 0.5",
            r"`layer_decay` must be left out with tuning = 'frozen'.*Received: 0\.5",
        ),
        (
            "[data]\nimages = 'x'\n[embedder]\npooling = 'token'\n[moments]\norder = 2",
            r"\[moments\]: `order` must be 1 with pooling = 'token'.*Received: 2",
        ),
        (
            "[data]\nimages = 'x'\n[fit]\nlayer_decay = 1.5",
            r"`layer_decay` must be above 0 and at most 1 and finite\. Received: 1\.5",
        ),
    ],
)
def test_mistakes_are_named(write, text, message):
    with pytest.raises(RecipeError, match=message):
        read_recipe(write(text))


def test_tables_that_a_recipe_is_made_of_stay_as_they_are():
    tables = {
        "data": {"images": "images"},
        "loss": {"name": "LogRatioLoss", "label_distance": "caption"},
    }
    before = copy.deepcopy(tables)
    assert recipe_of(tables).loss.label_distance == "caption"
    assert tables == before
    with pytest.raises(RecipeError, match=r"^small: the table \[data\]"):
        recipe_of({"loss": tables["loss"]}, "small")


def test_missing_recipe_is_said_to_be_missing(tmp_path):
    with pytest.raises(RecipeError, match=r"no recipe at .*none\.toml"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize("steps", [1, 2, 7, 60, 2_000])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_recipe_can_be_tried_in_few_steps(path, steps):
    for recipe in recipes_of(path).values():
        plan = recipe.fit
        short = plan.with_steps(steps)  # which checks itself
        assert short.steps == steps == short.epochs * short.epoch_steps
        assert short.epochs <= (plan.epochs or steps)
        assert short.learning_rate == plan.learning_rate
        if plan.decay_at and steps >= 60 and not plan.minutes:
            shares = [at / steps for at in short.decay_at]
            expected = [at / plan.steps for at in plan.decay_at]
            np.testing.assert_allclose(shares, expected, atol=1 / steps)


def test_plan_of_as_many_steps_stays_as_it_is():
    for path in FILES:
        for recipe in recipes_of(path).values():
            plan = recipe.fit
            assert plan.minutes or plan.with_steps(plan.steps) == plan
    with pytest.raises(RecipeError, match=r"`steps` must be at least 1\. Received: 0"):
        plan.with_steps(0)
    for minutes in (0, -1, math.nan, math.inf):
        with pytest.raises(RecipeError, match="`minutes` must be above 0 and finite"):
            plan.with_minutes(minutes)


@pytest.mark.parametrize(
    ("settings", "table", "key", "value"),
    [
        (["fit.learning_rate=1e-4"], "fit", "learning_rate", 1e-4),
        (["fit.steps=20", "fit.steps=40"], "fit", "steps", 40),
        (["embedder.widths=[8, 16]"], "embedder", "widths", (8, 16)),
        (["augmentation.flip = true"], "augmentation", "flip", True),
        (["loss.name=ProxyAnchorLoss"], "loss", "name", "ProxyAnchorLoss"),
        (['loss.name="ProxyAnchorLoss"'], "loss", "name", "ProxyAnchorLoss"),
        (["data.images=a=b"], "data", "images", "a=b"),
        (["data.images=C:\\photos"], "data", "images", "C:\\photos"),
        (["data.images=1\nroot = 2"], "data", "images", "1\nroot = 2"),
        (["images.resize=90"], "images", "resize", 90),  # over the old name
    ],
)
def test_values_are_set_beside_the_recipe(write, settings, table, key, value):
    path = write("[data]\nimages = 'x'\n[pictures]\nresize = 80\n[fit]\nsteps = 10\n")
    recipe = read_recipe(path, settings=settings)
    assert getattr(getattr(recipe, table), key) == value
    assert recipe.data.validation_fraction == 0.05


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("fit.learning_rat=1", "Did you mean `learning_rate`?"),
        ("fitt.steps=1", "no table `fitt`. Did you mean `fit`?"),
        ("fit.learning_rate=1e-4x", "must be a number. Received: '1e-4x'"),
        ("fit.steps=1.5", "`steps` must be a whole number"),
        ("fit.steps", "`--set` must be TABLE.KEY=VALUE.* Received: 'fit.steps'"),
        ("steps=1", "`--set` must be TABLE.KEY=VALUE"),
        ("=1", "`--set` must be TABLE.KEY=VALUE"),
        ("fit.=1", "`--set` must be TABLE.KEY=VALUE"),
    ],
)
def test_mistakes_in_set_values_are_named(write, setting, message):
    with pytest.raises(RecipeError, match=message):
        read_recipe(write("[data]\nimages = 'x'\n"), settings=[setting])
