"""The rows of the papers' tables: all there, each with a recipe that can be built."""

import re

import numpy as np
import pytest

from tests.support.shipped_recipes import FOLDER, described, recipes_of
from tfdml.metrics import clustering_metrics, retrieval_metrics
from training.data.data_set import DataSet
from training.recipe.former_recipes import FORMER
from training.recipe.recipe import RecipeError, read_recipe
from training.run.build_batches import build_design, build_loss

PAPERS = sorted((FOLDER / "papers").glob("*.toml"))

# Rows and columns of each table, counted in the papers.
PRINTED = {
    "log_ratio": {"Slide 52": (9, 0), "Slide 53": (24, 0)},
    "multi_similarity": {
        "Supplement, Table 1": (5, 1),
        "Supplement, Table 2": (7, 1),
    },
    "proxy_anchor": {
        "Slide 24": (2 * 17, 4),
        "Slide 25, Online Products": (16, 4),
        "Slide 25, In-Shop": (11, 4),
        "Slide 28": (2 * 7, 4),
    },
    "topk_precision": {
        "Table 1, section 4.6, CUB and Cars": (2 * 10, 10),
        "Table 1, section 4.6, Online Products": (10, 10),
        "Supplement, Table 1, CUB and Cars": (2 * 10, 10),
        "Supplement, Table 1, Online Products": (10, 10),
        "Supplement, Table 2": (2 * 10, 1),
    },
    "weighted_contrastive": {
        "Table 1, section 6.1": (8 * 2, 4),
        "Table 2, section 6.6": (7, 5),
        "Table 3, section 6.6": (7, 5),
        "Table 4, section 6.6": (7, 5),
    },
}
# What the papers print as "-".
NOT_PRINTED = {("proxy_anchor", "Slide 25, Online Products"): 7}


def test_every_table_is_there_with_all_its_rows():
    found = {
        path.stem: {
            table.name: (len(table.rows), len(table.columns))
            for table in described(path).tables
        }
        for path in PAPERS
    }
    assert found == PRINTED


def values_at(row, prefix):
    """Return the values of a row for k = 1, 2 and so on, as far as it has them."""
    found = {c.removeprefix(prefix): v for c, v in row.items() if c.startswith(prefix)}
    return [found[k] for k in sorted(found, key=int)]


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_printed_recall_rises_with_k_and_precision_falls(path):
    for table in described(path).tables:
        for variant, row in table.rows.items():
            recall = values_at(row, "recall_at_")
            precision = values_at(row, "precision_at_")
            assert recall == sorted(recall), (table.name, variant)
            assert precision == sorted(precision, reverse=True), (table.name, variant)
        cells = len(table.rows) * len(table.columns)
        printed = sum(map(len, table.rows.values()))
        assert cells - printed == NOT_PRINTED.get((path.stem, table.name), 0)


def test_printed_metrics_are_those_of_an_evaluation():
    labels = np.repeat([0, 1], 2)
    measured = {
        *retrieval_metrics(np.eye(2)[labels], labels, (1,)),
        *(f"clustering.{name}" for name in clustering_metrics(labels, labels)),
    }
    for path in PAPERS:
        columns = {c for table in described(path).tables for c in table.columns}
        named = {c.removeprefix("superclasses.") for c in columns}
        assert {re.sub(r"_at_\d+$", "_at_1", name) for name in named} <= measured


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_every_row_has_a_recipe_or_a_reason(path):
    file = described(path)
    with_recipe = set(recipes_of(path))
    for variant in file.variants:
        assert bool(file.missing(variant)) == (variant not in with_recipe)
    for variant, recipe in recipes_of(path).items():
        assert recipe.published.variant == variant
        assert recipe.published.rows or path.stem == "log_ratio"


CLASSES, IMAGES = 200, 40
LABELS = np.repeat(np.arange(CLASSES), IMAGES)


def training_images(recipe):
    random = np.random.default_rng(0)
    shape = {
        "squared_euclidean": (300, 16, 2),
        "segmentation": (300, 4, 4, 5),
        "caption": (300, 5, 6),
    }[recipe.loss.label_distance]
    if recipe.batches.design != "neighbors":
        names = tuple(map(str, range(CLASSES)))
        images = np.zeros((len(LABELS), 1, 1, 3), "uint8")
        return DataSet(images, LABELS, np.full(len(LABELS), "train"), names)
    labels = random.normal(size=shape)
    if recipe.loss.label_distance == "segmentation":
        labels = np.eye(5)[random.integers(0, 5, shape[:-1])]
    images = np.zeros((len(labels), 1, 1, 3), "uint8")
    return DataSet(images, labels, np.full(len(labels), "train"))


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_batches_and_loss_of_every_row_can_be_built(path):
    built = set()
    for variant, recipe in recipes_of(path).items():
        key = repr((recipe.batches, recipe.loss))
        if key in built:
            continue
        built.add(key)
        train = training_images(recipe)
        design = build_design(recipe, train)
        assert len(design) > 0, variant
        build_loss(recipe, train, design)


# Former names, whose commands still work.
EXAMPLES = {
    "topk_cub_densenet": ("cub/densenet201/topk", "DenseNet201", 64),
    "topk_sop_inception": ("sop/bn_inception/topk", "InceptionV3", 512),
    "proxy_anchor_in_shop_256": (
        *("in_shop/bn_inception/512/proxy_anchor/256px", "InceptionV3", 512),
    ),
    "margin_cub": ("cub/resnet50/128/margin", "ResNet50V2", 128),
    "balanced_contrastive_sop": ("sop/balanced/is", "ResNet50", 128),
    "log_ratio_mpii": ("mpii/log_ratio/128", "ResNet50", 128),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("form", ["papers/{}", "training/recipes/papers/{}.toml"])
def test_recipe_with_a_former_file_is_found(name, form):
    variant, backbone, dimension = EXAMPLES[name]
    recipe = read_recipe(form.format(name), settings=["fit.seed=3"])
    assert recipe.published.variant == variant
    assert (recipe.embedder.backbone, recipe.embedder.weights) == (backbone, "imagenet")
    assert (recipe.embedder.embedding_dimension, recipe.fit.seed) == (dimension, 3)


def test_every_former_name_is_that_of_a_variant():
    names = [name for former in FORMER.values() for name in former]
    assert len(names) == 40
    for name in names:
        assert read_recipe(f"papers/{name}").published.rows or "log_ratio" in name


def test_file_that_never_was_is_missing(tmp_path):
    for path in ("papers/topk_cub_vgg", "other/topk_cub_densenet"):
        with pytest.raises(RecipeError, match="There is no recipe at"):
            read_recipe(tmp_path / path)
