"""Recipes: what is read, and what is refused."""

from pathlib import Path

import pytest

from training.recipe import RecipeError, read_recipe

RECIPES = sorted((Path(__file__).parents[1] / "training" / "recipes").glob("*.toml"))


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipes_that_come_along_are_valid(path):
    read_recipe(path)


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
        ("[data]\nimages = 'x'\n[fit]\nlearning_rate = inf", "must be above 0 and"),
        ("[data]\nimages = 'x'\n[fit]\nweight_decay = inf", "must be at least 0. Rec"),
        ("[data]\nimages = 'x'\n[fit]\nseed = 4294967296", "`seed` must be from 0 to"),
        (
            "[data]\nimages = 'x'\nvalidation_fraction = 0\n[fit]\npatience = 2",
            "`patience` must be 0 without validation classes",
        ),
        (
            "[data]\nimages = 'x'\n[loss]\nname = 'precision_loss'",
            "no loss `precision_loss`",
        ),
        ("[data]\nimages = 'x'\n[embedder]\nwidths = 8", "`widths` must be a list"),
        ("data = 3", r"`data` must be a table, written \[data\]"),
    ],
)
def test_mistakes_are_named(write, text, message):
    with pytest.raises(RecipeError, match=message):
        read_recipe(write(text))


def test_missing_recipe_is_said_to_be_missing(tmp_path):
    with pytest.raises(RecipeError, match=r"no recipe at .*none\.toml"):
        read_recipe(tmp_path / "none.toml")
