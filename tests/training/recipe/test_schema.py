"""The JSON Schema of recipes refuses what the reader refuses, key by key."""

import json
import tomllib

import jsonschema
import pytest

from tests.support.shipped_recipes import FILES, FOLDER
from training.__main__ import main
from training.recipe.losses import losses_in_recipes
from training.recipe.recipe import RecipeError, recipe_of
from training.recipe.schema import recipe_schema


@pytest.fixture(scope="module")
def schema():
    found = jsonschema.Draft202012Validator(recipe_schema())
    found.check_schema(found.schema)
    return found


def test_the_file_beside_the_recipes_is_the_schema(capsys, tmp_path):
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert main(["schema", "--out", str(tmp_path / "schema.json")]) == 0
    assert (tmp_path / "schema.json").read_text("utf-8") == printed
    name = "training/recipes/recipe.schema.json"
    file = FOLDER / "recipe.schema.json"
    assert file.read_text("utf-8") == printed, f"python -m training schema --out {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_recipes_that_come_along_are_valid_and_name_it(path, schema):
    text = path.read_text("utf-8")
    assert not list(schema.iter_errors(tomllib.loads(text)))
    directive, _, file = text.splitlines()[0].partition(" ")
    assert directive == "#:schema"
    assert (path.parent / file).resolve() == FOLDER / "recipe.schema.json"


@pytest.mark.parametrize("name", losses_in_recipes())
def test_each_loss_with_its_defaults_is_valid(name, schema):
    keys = {
        "ABELoss": {"heads": 2},
        "BIERLoss": {"learners": [2, 2]},
        "PairWeightedLoss": {"weight_function": "f"},
        "BoundarySampledLoss": {"loss": {"name": "TripletLoss"}},
    }.get(name, {})
    tables = {"data": {"images": "x"}, "loss": {"name": name, **keys}}
    assert not list(schema.iter_errors(tables))


def test_defaults_are_those_of_the_recipe(schema):
    recipe = recipe_of({"data": {"images": "x"}})
    for name, table in schema.schema["properties"].items():
        for key, about in table.get("properties", {}).items():
            if "default" in about and not about.get("deprecated"):
                found = json.loads(json.dumps(getattr(getattr(recipe, name), key)))
                assert found == about["default"], (name, key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[dat]\nimages = 'x'",
        "[data]\nimages = 3",
        "[data]\nimages = 'x'\nimage = 'y'",
        "[data]\nimages = 'x'\ntest_fraction = 1.5",
        "[data]\nimages = 'x'\n[pictures]\nresiz = 8",
        "[data]\nimages = 'x'\n[embedder]\nimage_size = 7",
        "[data]\nimages = 'x'\n[embedder]\nwidths = 8",
        "[data]\nimages = 'x'\n[embedder]\nwidths = [8.5]",
        "[data]\nimages = 'x'\n[images]\ncrop = 'middle'",
        "[data]\nimages = 'x'\n[batches]\ndesign = 'group'",
        "[data]\nimages = 'x'\n[augmentation]\nrotation = 200",
        "[data]\nimages = 'x'\n[augmentation]\nflip = 1",
        "[data]\nimages = 'x'\n[proxies]\nlearning_rate_multiplier = 0",
        "[data]\nimages = 'x'\n[fit]\nsteps = 0",
        "[data]\nimages = 'x'\n[fit]\nsteps = '10'",
        "[data]\nimages = 'x'\n[fit]\nlearning_rate = 0",
        "[data]\nimages = 'x'\n[fit]\nmomentum = 1\noptimizer = 'sgd'",
        "[data]\nimages = 'x'\n[fit]\noptimizer = 'adamax'",
        "[data]\nimages = 'x'\n[fit]\ntensorboard = 'yes'",
        "[data]\nimages = 'x'\n[fit]\ncallbacks = 'wandb'",
        "[data]\nimages = 'x'\n[loss]\nname = 'TopkLoss'",
        "[data]\nimages = 'x'\n[loss]\nscale = 1",  # of another loss
        "[data]\nimages = 'x'\n[loss]\nk = 'five'",
        "[data]\nimages = 'x'\n[loss]\nname = 'TripletLoss'\ndistance = 'l2'",
        "[data]\nimages = 'x'\n[loss]\nname = 'LogRatioLoss'\nlabel_distance = 'l2'",
        "[data]\nimages = 'x'\n[loss]\nname = 'WeightedContrastiveLoss'\n"
        "class_counts = [1]",
        "[data]\nimages = 'x'\n[loss]\nname = 'PairWeightedLoss'",
        "[data]\nimages = 'x'\n[published]\nrow = {}",
        "[data]\nimages = 'x'\n[published]\nrows = 3",
    ],
)
def test_what_the_reader_refuses_an_editor_marks(text, schema):
    tables = tomllib.loads(text)
    assert list(schema.iter_errors(tables))
    with pytest.raises(RecipeError):
        recipe_of(tables)


@pytest.mark.parametrize(
    "text",
    [
        "choices = 3",
        "[choices]\ncub = 3",
        "[choices.cub.fitt]\nsteps = 1",
        "[choices.cub.fit]\nstep = 1",
        "[choices.cub.fit]\nsteps = 0",
        "[choices.cub.loss]\nname = 'TripletLoss'\nk = 5",
        "[choices.cub]\nmissing = 3",
        "[choices.cub.fit]\n[[results]]\ntable = 'x'",
        "[choices.cub.fit]\n[[results]]\ntable = 'x'\ncolumns = ['recall_at_1']\n"
        "rows = {cub = [101.0]}",
        "[choices.cub.fit]\n[[results]]\ntable = 'x'\ncolumns = ['recall_at_1']\n"
        "rows = {cub = ['a']}",
    ],
)
def test_mistakes_in_choices_are_marked(text, schema):
    assert list(schema.iter_errors(tomllib.loads(text)))


def test_choices_may_give_what_a_recipe_needs(schema):
    text = "[choices.cub.data]\nimages = 'x'\n[choices.a.loss]\nmargin = 0.1\n"
    assert not list(schema.iter_errors(tomllib.loads(text)))
