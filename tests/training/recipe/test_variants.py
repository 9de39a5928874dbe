"""Files that describe many recipes: choices, variants, published rows."""

import pytest

from training.__main__ import main
from training.recipe.published import Published
from training.recipe.recipe import RecipeError, read_recipe
from training.reports.published import published_text

FILE = """
paper = "Somebody, Something, 2020"

[data]
images = "x"

[embedder]
embedding_dimension = 8

[batches]
images_per_class = 3

[choices.cub.data]
images = "cub"

[choices.sop.data]
images = "sop"

[choices.triplet.loss]
name = "TripletLoss"
margin = 0.3

[choices.cosine.loss]
distance = "cosine"

[choices.proxies]
loss = {name = "ProxyAnchorLoss"}
batches = {design = "shuffled"}

[choices."sop/triplet".loss]
margin = 0.4

[choices.ensemble]
missing = "several networks"
"""
ROWS = """
[[results]]
table = "Table 1"
columns = ["recall_at_1", "recall_at_3", "clustering.nmi_geometric"]
rows = {"cub/triplet" = [50, 60.5, "-"], "sop/triplet/cosine" = [1, 2, 3]}

[[results]]
table = "Table 2"
columns = ["precision_at_10"]
rows = {"cub/triplet" = [40.25], "cub/ensemble" = [55.0]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "paper.toml"
    path.write_text(FILE + ROWS, encoding="utf-8")
    return path


def test_variant_is_the_base_with_its_choices_over_it(file):
    recipe = read_recipe(file, variant="cub/triplet")
    assert recipe.data.images == "cub"
    assert recipe.embedder.embedding_dimension == 8
    assert recipe.loss.name == "TripletLoss"
    assert recipe.loss.arguments == {"margin": 0.3}


def test_choice_of_several_words_is_for_variants_that_hold_them_all(file):
    recipe = read_recipe(file, variant="sop/triplet/cosine")
    assert recipe.loss.arguments == {"margin": 0.4, "distance": "cosine"}


def test_choices_combine_freely_where_no_row_is_published(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(FILE, encoding="utf-8")
    assert read_recipe(path, variant="cosine/triplet/sop").data.images == "sop"
    with pytest.raises(RecipeError, match=r"no choice 'tripet'.* `triplet`"):
        read_recipe(path, variant="cub/tripet")


def test_named_loss_or_design_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(FILE, encoding="utf-8")
    recipe = read_recipe(path, variant="triplet/proxies")
    assert (recipe.loss.name, recipe.loss.arguments) == ("ProxyAnchorLoss", {})
    assert recipe.batches.design == "shuffled"  # which takes no `images_per_class`


def test_published_rows_come_with_the_variant(file):
    published = read_recipe(file, variant="cub/triplet").published
    assert published.paper == "Somebody, Something, 2020"
    assert published.variant == "cub/triplet"
    assert published.rows == {
        "Table 1": {"recall_at_1": 50.0, "recall_at_3": 60.5},
        "Table 2": {"precision_at_10": 40.25},
    }
    assert published.ks == (1, 3, 10)


def test_set_values_are_over_those_of_the_variant(file):
    recipe = read_recipe(
        file, variant="cub/triplet", images="y", settings=["loss.margin=0.5"]
    )
    assert (recipe.data.images, recipe.loss.arguments["margin"]) == ("y", 0.5)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (None, r"paper.toml holds 3 recipes: `--variant` must name one, such as cub/t"),
        ("cub/tripel", "no variant 'cub/tripel'. Did you mean `cub/triplet`?"),
        ("xxxxx", r"no variant 'xxxxx'. `tfdml recipes .*paper.toml` lists them"),
        ("cub/ensemble", "cub/ensemble cannot run: several networks"),
    ],
)
def test_variant_that_is_none_is_named(file, variant, message):
    with pytest.raises(RecipeError, match=message):
        read_recipe(file, variant=variant)


def test_variant_of_a_single_recipe_is_refused():
    with pytest.raises(RecipeError, match="must be left out: demo holds one recipe"):
        read_recipe("demo", variant="cub")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("choices = 3", "`choices` must be tables"),
        ("[choices]\ncub = 3", r"\[choices.cub\] must be a table. Received: 3"),
        ("[choices.cub]\nfit = 3", r"\[choices.cub\]: `fit` must be a table"),
        ("[choices.cub]\nmissing = 3", "`missing` must be a text. Received: 3"),
        (FILE + "[results]\ntable = 'x'", r"`results` must be a list"),
        (FILE + "[[results]]\ntable = 'x'", r"\[\[results\]\] 1: `table` must be"),
        (FILE + ROWS.replace("60.5, ", ""), "'cub/triplet' must be a list of 3 values"),
        (FILE + ROWS.replace("60.5", "605"), "must hold percentages, .*605"),
        (FILE + ROWS.replace("60.5", "true"), "must hold percentages"),
        (FILE + ROWS.replace("recall_at_3", "recal_at_3"), "named as in metrics.json"),
        (FILE + ROWS.replace('"cub/ens', '"cup/ens'), "there is no choice 'cup'"),
        (FILE.replace("cub.data", "cub.date"), "no table `date`. Did you mean `data`"),
    ],
)
def test_mistakes_in_choices_are_named(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        read_recipe(path, variant="cub/triplet")


def test_variants_are_listed_with_what_was_printed(file, capsys):
    assert main(["recipes", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Somebody, Something, 2020",
        "",
        "Table 1, in percent",
        "                       Recall@1  Recall@3    NMI",
        "cub/triplet                50.0      60.5      -",
        "sop/triplet/cosine          1.0       2.0    3.0",
        "",
        "Table 2, in percent",
        "                 Precision@10",
        "cub/triplet             40.25",
        "cub/ensemble *          55.00",
        "",
        "* cannot run:",
        "cub/ensemble: several networks",
    ]


def test_recipes_that_come_along_are_listed(capsys):
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "demo" in lines
    assert "papers/multi_similarity (12 variants)" in lines
    assert main(["recipes", "demo"]) == 0
    assert capsys.readouterr().out == "demo is a single recipe.\n"


def test_published_values_stand_beside_the_measured(file):
    published = read_recipe(file, variant="cub/triplet").published
    measured = {"metrics": {"recall_at_1": 0.4912, "precision_at_10": 0.4}}
    assert published_text(published, measured).splitlines() == [
        "As published for cub/triplet, in percent: Somebody, Something, 2020",
        "Table 1   published     here",
        "Recall@1       50.0     49.1",
        "Recall@3       60.5        -",
        "Table 2       published     here",
        "Precision@10      40.25    40.00",
    ]
    assert published_text(Published(), measured) == ""


def test_published_value_is_a_percentage_of_a_metric():
    with pytest.raises(RecipeError, match=r"from 0 to 100\. Received: 100\.5"):
        Published(rows={"Table 1": {"map_at_r": 100.5}})
    with pytest.raises(RecipeError, match=r"named as in metrics\.json.* 'recall'"):
        Published(rows={"Table 1": {"recall": 1.0}})
