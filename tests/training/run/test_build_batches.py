"""The batch design and the loss of a recipe."""

import dataclasses

import numpy as np
import pytest

from tfdml.batch_designs import (
    CappedClassBatches,
    GroupBatches,
    NeighborBatches,
    NPairBatches,
    PairBatches,
    ShuffledBatches,
)
from tfdml.losses import (
    BalancedContrastiveLoss,
    BoundarySampledLoss,
    ContinuousTripletLoss,
    ContrastiveLoss,
    HORDELoss,
    LogRatioLoss,
    MatryoshkaLoss,
    ThresholdConsistentMarginLoss,
    TripletLoss,
    binlifted_weights,
)
from tfdml.ops import caption_distance
from training.data.data_set import DataSet
from training.recipe.recipe import RecipeError, read_recipe
from training.run.build_batches import (
    build_design,
    build_loss,
    label_distance_of,
    loss_targets,
)

LABELS = np.repeat(np.arange(6), [2, 3, 4, 4, 5, 6])


def classes():
    images = np.zeros((len(LABELS), 8, 8, 3), "uint8")
    return DataSet(images, LABELS, np.full(len(LABELS), "train"), tuple("abcdef"))


def poses():
    labels = np.random.default_rng(0).normal(size=(20, 3))
    return DataSet(np.zeros((20, 8, 8, 3), "uint8"), labels, np.full(20, "train"))


@pytest.fixture
def recipe(tmp_path):
    def read(text):
        path = tmp_path / "recipe.toml"
        path.write_text("[data]\nimages = 'x'\n[fit]\nseed = 3\n" + text)
        return read_recipe(path)

    return read


def test_hierarchical_loss_takes_the_category_and_the_class(recipe):
    about = recipe("[loss]\nname = 'HierarchicalAPLoss'")
    categories = np.where(LABELS < 4, "chair", "table")
    train = dataclasses.replace(classes(), categories=categories)
    expected = [[int(label >= 4), label] for label in LABELS]
    assert loss_targets(about, train).tolist() == expected
    np.testing.assert_array_equal(loss_targets(recipe(""), train), LABELS)
    for few in (None, np.full(len(LABELS), "chair")):
        train = dataclasses.replace(classes(), categories=few)
        with pytest.raises(RecipeError, match=r"without a `category`.*SupAPLoss"):
            loss_targets(about, train)


def test_moments_wrap_the_loss(recipe):
    about = recipe("[loss]\nname = 'ContrastiveLoss'\n[moments]\norder = 3")
    loss = build_loss(about, classes(), build_design(about, classes()))
    assert isinstance(loss, HORDELoss)
    assert (type(loss.loss), loss.order) == (ContrastiveLoss, 3)
    about = recipe(
        "[loss]\nname = 'LogRatioLoss'\n[batches]\ndesign = 'neighbors'\n"
        "batch_size = 8\n[moments]\norder = 3"
    )
    with pytest.raises(RecipeError, match=r"\[loss\]: `loss` must be a loss of tfdml"):
        build_loss(about, poses(), build_design(about, poses()))
    with pytest.raises(RecipeError, match=r"\[moments\]: `order` must be 1 with a los"):
        recipe("[loss]\nname = 'ProxyAnchorLoss'\n[moments]\norder = 2")


def test_dimensions_put_the_loss_on_prefixes(recipe):
    about = recipe(
        "[embedder]\nembedding_dimension = 32\n[loss]\nname = 'ContrastiveLoss'\n"
        "margin = 0.5\ndimensions = [8, 32]\ndimension_weights = [1, 2.5]"
    )
    loss = build_loss(about, classes(), build_design(about, classes()))
    assert isinstance(loss, MatryoshkaLoss)
    assert loss.dimensions == about.loss.dimensions == (8, 32)
    assert loss.weights == (1.0, 2.5)
    assert (type(loss.loss), loss.loss.margin) == (ContrastiveLoss, 0.5)


def test_margin_is_added_to_a_loss_of_the_recipe(recipe):
    about = recipe(
        "[loss]\nname = 'ThresholdConsistentMarginLoss'\npositive_margin = 0.8\n"
        "loss = {name = 'ContrastiveLoss', margin = 0.5}"
    )
    loss = build_loss(about, classes(), build_design(about, classes()))
    assert isinstance(loss, ThresholdConsistentMarginLoss)
    assert loss.positive_margin == 0.8
    assert (type(loss.loss), loss.loss.margin) == (ContrastiveLoss, 0.5)
    alone = recipe("[loss]\nname = 'ThresholdConsistentMarginLoss'")
    assert build_loss(alone, classes(), build_design(alone, classes())).loss is None
    for inner, message in {
        "'ContrastiveLoss'": "must be a table with the `name` of the loss that the mar",
        "{name = 'NoLoss'}": "`loss`: there is no loss `NoLoss`",
        "{name = 'ProxyAnchorLoss'}": "`loss` must be a loss of tfdml.losses over",
    }.items():
        with pytest.raises(RecipeError, match=message):
            recipe(f"[loss]\nname = 'ThresholdConsistentMarginLoss'\nloss = {inner}")


def test_losses_on_layers_say_so(recipe):
    assert recipe("[loss]\nname = 'LearnedPairwiseSigmoidLoss'").loss.on_scale
    several = "[proxies]\ncenters_per_class = 3"
    about = recipe(f"[loss]\nname = 'SubCenterArcFaceLoss'\n{several}")
    assert about.loss.on_proxies
    with pytest.raises(RecipeError, match="must be 1 except with SoftTripleLoss and S"):
        recipe(f"[loss]\nname = 'ProxyNCAPlusPlusLoss'\n{several}")
    with pytest.raises(RecipeError, match=r"there is no loss `SimilarityDistillation"):
        recipe("[loss]\nname = 'SimilarityDistillationLoss'")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "dimensions = [8, 32]",
            r"\[loss\]: the last of `dimensions` must be the ",
        ),
        ("dimensions = [64, 8]", "`dimensions` must rise"),
        ("dimensions = 128", "`dimensions` must be the lengths of the prefixes"),
        (
            "dimension_weights = [1]",
            "`dimension_weights` must be left out with",
        ),
        (
            "dimensions = [8, 128]\ndimension_weights = [1]",
            r"`dimension_weights` must be one number .* Received: \[1\]",
        ),
        (
            "name = 'BIERLoss'\nlearners = [64, 64]\ndimensions = [64, 128]",
            "there is no key `dimensions`",
        ),
    ],
)
def test_dimensions_that_do_not_go_together_are_refused(recipe, keys, message):
    with pytest.raises(RecipeError, match=message):
        recipe(f"[loss]\n{keys}")


DESIGNS = [
    ("images_per_class = 3\nclasses_per_batch = 4", GroupBatches, 12),
    (
        "design = 'capped'\nbatch_size = 10\nimages_per_class = 3",
        CappedClassBatches,
        10,
    ),
    ("design = 'pairs'\nbatch_size = 10", PairBatches, 10),
    ("design = 'n_pairs'\nclasses_per_batch = 5", NPairBatches, 10),
    ("design = 'shuffled'\nbatch_size = 7", ShuffledBatches, 7),
]


@pytest.mark.parametrize(("text", "kind", "size"), DESIGNS)
def test_recipe_names_the_design(recipe, text, kind, size):
    design = build_design(recipe(f"[batches]\n{text}"), classes())
    assert type(design) is kind
    assert design.batch_size == size
    assert design.seed == 3
    assert design.images == len(LABELS)


def test_continuous_labels_take_neighbor_batches_and_log_ratio(recipe):
    text = (
        "[batches]\ndesign = 'neighbors'\nbatch_size = 12\nneighbors = 4\nanchors = 2"
    )
    about = recipe(f"[loss]\nname = 'LogRatioLoss'\n{text}")
    design = build_design(about, poses())
    assert isinstance(design, NeighborBatches)
    assert (design.neighbors, design.anchors, design.batch_size) == (4, 2, 12)
    assert isinstance(build_loss(about, poses(), design), LogRatioLoss)


def test_continuous_triplet_loss_takes_its_arguments_and_label_distance(recipe):
    about = recipe(
        "[batches]\ndesign = 'neighbors'\nbatch_size = 12\n"
        "[loss]\nname = 'ContinuousTripletLoss'\nmargin = 0.2\nthreshold = 1\n"
        "label_distance = 'caption'"
    )
    loss = build_loss(about, poses(), build_design(about, poses()))
    expected = ContinuousTripletLoss(
        0.2, threshold=1.0, label_distance=caption_distance
    )
    assert loss.get_config() == expected.get_config()


def test_label_distance_is_that_of_loss_and_batches(recipe):
    text = "[batches]\ndesign = 'neighbors'\nbatch_size = 12\n[loss]\n"
    about = recipe(f"{text}name = 'LogRatioLoss'\nlabel_distance = 'caption'")
    assert label_distance_of(about) is caption_distance
    design = build_design(about, poses())
    loss = build_loss(about, poses(), design)
    assert loss.label_distance is caption_distance
    apart = np.array(caption_distance(poses().labels, poses().labels))
    np.fill_diagonal(apart, np.inf)
    np.testing.assert_array_equal(design.nearest[:, 0], apart.argmin(axis=1))


def test_pair_weights_are_named_as_they_are_registered(recipe):
    text = (
        "[loss]\nname = 'PairWeightedLoss'\n"
        "weight_function = 'tfdml>binlifted_weights'\narguments = {beta = 10.0}"
    )
    about = recipe(text)
    loss = build_loss(about, classes(), build_design(about, classes()))
    assert loss.weight_function is binlifted_weights
    assert loss.arguments == {"beta": 10.0}
    with pytest.raises(RecipeError, match=r"\[loss\]: `weight_function` must be"):
        recipe(text.replace("tfdml>", ""))


def test_weighted_loss_knows_counts_and_design(recipe):
    about = recipe(
        "[loss]\nname = 'BalancedContrastiveLoss'\npower = 0.5\n"
        "[batches]\nimages_per_class = 3\nclasses_per_batch = 4\n"
        "small_classes = 'leave_out'\nimportance_weights = true"
    )
    design = build_design(about, classes())
    expected = BalancedContrastiveLoss(
        np.bincount(LABELS), images_per_class=3, classes_per_batch=4, power=0.5
    )
    loss = build_loss(about, classes(), design)
    assert loss.get_config() == expected.get_config()


@pytest.mark.parametrize(
    "name", ["LearnedMarginLoss", "DistanceWeightedLearnedMarginLoss"]
)
def test_loss_with_learned_boundaries_knows_the_number_of_classes(recipe, name):
    about = recipe(f"[loss]\nname = '{name}'\nalpha = 0.3")
    loss = build_loss(about, classes(), build_design(about, classes()))
    assert about.loss.on_boundaries
    assert (loss.num_classes, loss.alpha) == (6, 0.3)


def test_boundary_sampling_takes_another_loss_as_a_table(recipe):
    text = "[loss]\nname = 'BoundarySampledLoss'\nk = 3\n"
    about = recipe(f"{text}loss = {{name = 'TripletLoss', margin = 0.4}}")
    loss = build_loss(about, classes(), build_design(about, classes()))
    expected = BoundarySampledLoss(TripletLoss(0.4), k=3)
    assert loss.get_config() == expected.get_config()
    for inner, message in (
        ("", "`loss` must be a table with the `name` .*TripletLoss.* Received: None"),
        ("loss = 'TripletLoss'", "`loss` must be a table with the `name`"),
        ("loss = {name = 'TripleLoss'}", "`loss`: there is no loss `TripleLoss`"),
        ("loss = {name = 'TripletLoss', k = 3}", "`loss`: there is no key `k`"),
        ("loss = {name = 'TripletLoss', margin = -1}", "`loss`: `margin` must be at"),
        ("loss = {name = 'ProxyNCALoss'}", "a PairLoss. Received: ProxyNCALoss"),
        ("loss = {name = 'BalancedContrastiveLoss'}", "a PairLoss. Received: Bal"),
        ("loss = {name = 'NPairLoss', l2_weight = 1}", "must be defined by"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipe(text + inner)


def test_weighted_loss_of_pairs_knows_their_probability(recipe):
    about = recipe(
        "[loss]\nname = 'WeightedContrastiveLoss'\n[batches]\ndesign = 'pairs'\n"
        "positive_probability = 0.25\nimportance_weights = true"
    )
    loss = build_loss(about, classes(), build_design(about, classes()))
    assert loss.positive_probability == 0.25
    assert loss.images_per_class is None


def test_without_importance_weights_all_pairs_weigh_alike(recipe):
    about = recipe("[loss]\nname = 'WeightedContrastiveLoss'")
    loss = build_loss(about, classes(), build_design(about, classes()))
    assert loss.images_per_class is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[batches]\ndesign = 'neighbors'", "`design` must be another than"),
        (
            "[batches]\ndesign = 'shuffled'\nbatch_size = 99",
            r"\[batches\]: `batch_size",
        ),
        (
            "[loss]\nname = 'LogRatioLoss'",
            "`name` must be LogRatioLoss or ContinuousTripletLoss for .*with classes",
        ),
        ("[loss]\nname = 'ContinuousTripletLoss'", "another for classes. Received"),
        (
            "[loss]\nname = 'WeightedContrastiveLoss'\n[batches]\n"
            "importance_weights = true",
            "leave smaller ones out",
        ),
        (
            "[loss]\nname = 'WeightedContrastiveLoss'\n[batches]\ndesign = 'pairs'",
            '`importance_weights` must be true for the design "pairs"',
        ),
        (
            "[loss]\nname = 'WeightedContrastiveLoss'\n[batches]\ndesign = 'capped'\n"
            "images_per_class = 3\nbatch_size = 8\nimportance_weights = true",
            "must be false except with the designs",
        ),
    ],
)
def test_what_does_not_suit_the_images_is_reported(recipe, text, message):
    about = recipe(text)
    with pytest.raises(RecipeError, match=message):
        build_loss(about, classes(), build_design(about, classes()))


def test_classes_do_not_suit_continuous_labels(recipe):
    with pytest.raises(RecipeError, match='must be "neighbors" for images with cont'):
        build_design(recipe(""), poses())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[batches]\ndesign = 'group'", "`design` must be 'groups', "),
        ("[batches]\nbatch_size = 32", "`batch_size` does not go with .*'groups'"),
        ("[batches]\ndesign = 'pairs'\nbatch_size = 9", "must be even .*Received: 9"),
        ("[batches]\nimportance_weights = true", "goes with WeightedContrastiveLoss"),
        ("[loss]\nname = 'WeightedContrastiveLoss'\nimages_per_class = 2", "no key"),
        (
            "[loss]\nname = 'LogRatioLoss'\nlabel_distance = 'words'",
            r"\[loss\]: `label_distance` must be 'squared_euclidean', 'seg",
        ),
        (
            "[loss]\nname = 'ContinuousTripletLoss'\nthreshold = -1",
            r"\[loss\]: `threshold` must be at least 0",
        ),
        ("[images]\ncrop = 'middle'", "`crop` must be 'none', 'position' or 'resized'"),
        ("[images]\nresize = 16", r"\[images\]: `resize` must be"),
    ],
)
def test_what_cannot_be_is_refused_when_the_recipe_is_read(recipe, text, message):
    with pytest.raises(RecipeError, match=message):
        recipe(text)
