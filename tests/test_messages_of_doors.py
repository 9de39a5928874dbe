"""Huge and colored values at public doors: each message stays short and printable.

Files and clients give values by the megabyte. Whatever a door says of one has at most
500 characters, names the argument, and holds nothing that colors a terminal.
"""

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tfdml
from serving.client import Credentials, EndpointClient, Retries
from serving.search.gallery.shards import Part
from serving.web.status import StatusCode, StatusError
from tfdml.index import ExactIndex, Not, Range, where_from_json
from tfdml.messages import LONGEST
from training.data.manifest import ManifestError, read_manifest
from training.recipe.checks import RecipeError
from training.recipe.recipe import read_recipe, recipe_of

ROWS = np.eye(4, dtype="float32")
LABELS = [0, 0, 1, 1]
COLORS = "\x1b[31m\u202e\x00\n"


class Colored:
    """An object whose text fills and colors the screen."""

    def __repr__(self):
        return COLORS * 3000


@functools.cache
def index():
    return ExactIndex.build(ROWS, ids=list("abcd"), attributes={"price": [1, 2, 3, 4]})


@functools.cache
def scores():
    return tfdml.metrics.match_scores(ROWS, LABELS)


def calibration(value):
    rates = dict.fromkeys(("precision", "recall", "false_positive_rate"), 0.5)
    counts = dict.fromkeys(("queries", "answered", "gallery"), 4)
    return tfdml.metrics.Calibration(
        value, "precision", 0.5, low=0.4, high=0.6, **rates, **counts
    )


def recipe(table, key):
    return lambda value: recipe_of({"data": {"images": "x"}, table: {key: value}})


def retrieval(**arguments):
    given = {"embeddings": ROWS, "labels": LABELS, "ks": [1]}
    return tfdml.metrics.retrieval_metrics(**(given | arguments))


# The name that each message must hold, and a call with the value.
DOORS = [
    ("`k`", lambda v: tfdml.losses.TopKPrecisionLoss(k=v)),
    ("`margin`", lambda v: tfdml.losses.TopKPrecisionLoss(margin=v)),
    ("`distance`", lambda v: tfdml.losses.TripletLoss(distance=v)),
    ("`weight_function`", lambda v: tfdml.losses.PairWeightedLoss(v)),
    ("`class_counts`", lambda v: tfdml.losses.WeightedContrastiveLoss(v)),
    ("`label_distance`", lambda v: tfdml.losses.LogRatioLoss(label_distance=v)),
    ("`p`", lambda v: tfdml.layers.GeMPooling(p=v)),
    ("`num_classes`", lambda v: tfdml.layers.Proxies(v)),
    ("`backbone`", lambda v: tfdml.models.build_embedder(16, backbone=v)),
    ("`pooling`", lambda v: tfdml.models.build_embedder(16, pooling=v)),
    ("`images_per_class`", lambda v: tfdml.batch_designs.GroupBatches(LABELS, v, 2)),
    (
        "`small_classes`",
        lambda v: tfdml.batch_designs.GroupBatches(LABELS, 2, 2, small_classes=v),
    ),
    ("`embeddings`", lambda v: retrieval(embeddings=v)),
    ("`labels`", lambda v: retrieval(labels=v)),
    ("`ks`", lambda v: retrieval(ks=v)),
    ("`is_query`", lambda v: retrieval(is_query=v)),
    ("`precision`", lambda v: tfdml.metrics.calibrate(scores(), precision=v)),
    ("calibration", tfdml.metrics.Calibration.from_json),
    ("`threshold`", calibration),
    ("`occurrences`", tfdml.metrics.hubness_of_occurrences),
    ("`queries`", lambda v: tfdml.neighbors.nearest_neighbors(v, ROWS, 1)),
    (
        "`metric`",
        lambda v: tfdml.neighbors.nearest_neighbors(ROWS, ROWS, 1, metric=v),
    ),
    ("`image_size`", tfdml.images.View),
    ("`crop`", lambda v: tfdml.images.RandomView(tfdml.images.View(8), crop=v)),
    ("`ids`", lambda v: ExactIndex.build(ROWS, ids=v)),
    ("attributes", lambda v: ExactIndex.build(ROWS, attributes=v)),
    ("`attributes['a']`", lambda v: ExactIndex.build(ROWS, attributes={"a": v})),
    ("`where", lambda v: index().search(ROWS, 1, where=v)),
    ("`where", where_from_json),
    ("`where['price']`", lambda v: index().search(ROWS, 1, where={"price": Not(v)})),
    ("`exclude`", lambda v: index().search(ROWS, 1, exclude=v)),
    ("`least`", lambda v: Range(least=v)),
    ("loss", recipe("loss", "name")),
    ("`steps`", recipe("fit", "steps")),
    ("`backbone`", recipe("embedder", "backbone")),
    ("`url`", EndpointClient),
    ("`token`", lambda v: Credentials(token=v)),
    ("`count`", lambda v: Retries(count=v)),
]

# What takes a path.
PATHS = {
    "find_images": tfdml.images.find_images,
    "labeled_images": tfdml.images.labeled_images,
    "list_images": tfdml.images.list_images,
    "load": ExactIndex.load,
    "load_embedder": tfdml.models.load_embedder,
    "load_index": tfdml.index.load_index,
    "read_image": tfdml.images.read_image,
    "read_manifest": read_manifest,
    "read_recipe": read_recipe,
    "save": lambda path: index().save(path),
}

HUGE = st.one_of(
    st.text(min_size=1).map(lambda text: text * 3000),
    st.binary(min_size=1).map(lambda data: data * 3000),
    st.just(COLORS * 3000),
    st.builds(pow, st.sampled_from([10, -10]), st.just(4999)),  # too long for `str`
    st.just(float("nan")),
    st.sampled_from(["float32", "int64", "bool", "U9"]).map(
        lambda dtype: np.zeros(10**5, dtype)
    ),
    st.builds(Colored),
)
VALUES = st.recursive(
    HUGE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", COLORS, "x" * 3000]), inner, max_size=3),
    ),
    max_leaves=3,
)


def check(name, error):
    message = error.args[0] if isinstance(error, KeyError) else str(error)
    assert len(message) <= LONGEST, message[:1000]
    assert all(line.isprintable() for line in message.split("\n")), message
    assert name in message


@pytest.mark.parametrize(("name", "door"), DOORS)
@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(value=VALUES)
@example(value=pow(10, 4999))
@example(value=-pow(10, 4999))
def test_a_message_is_short_printable_and_names_the_argument(name, door, value):
    try:
        door(value)
    except (ValueError, TypeError, KeyError) as error:
        check(name, error)


@pytest.mark.parametrize(
    "text",
    ["\x1b[31m" * 10**5, "x" * 10**6, "x,y\n" * 2000, 'a.png,"' + "\n" * 10**5],
    ids=["colors", "long", "lines", "open quote"],
)
@pytest.mark.parametrize("head", ["", "path,label,split\n", "path,label\n"])
def test_a_manifest_of_anything_is_refused_in_few_words(tmp_path, head, text):
    file = tmp_path / "manifest.csv"
    file.write_text(head + text, encoding="utf-8")
    with pytest.raises(ManifestError) as raised:
        read_manifest(file)
    check("manifest.csv", raised.value)


@pytest.mark.parametrize("key", ["x" * 10**6, COLORS * 10**5], ids=["long", "colors"])
def test_an_unknown_key_is_refused_in_few_words(key):
    for tables in ({key: {}}, {"fit": {key: 1}}, {"loss": {"name": key}}):
        with pytest.raises(RecipeError) as raised:
            recipe_of({"data": {"images": "x"}} | tables, key)
        check("there is no", raised.value)
    with pytest.raises(ValueError, match="NUMBER/COUNT") as raised:
        Part.parse(key)
    check("shard", raised.value)


@pytest.mark.parametrize("text", ["x" * 10**6, COLORS * 10**5], ids=["long", "colors"])
def test_what_a_server_answers_is_short_and_printable(text):
    check("", StatusError(StatusCode.INVALID_ARGUMENT, text))


@pytest.mark.parametrize("door", PATHS)
@pytest.mark.parametrize("name", ["x" * 10**6, "/".join(["x" * 200] * 5000)])
def test_path_by_the_megabyte_is_refused_in_short(tmp_path, door, name):
    with pytest.raises((OSError, ValueError), match=r"\.\.\..*xxx") as refused:
        PATHS[door](f"{tmp_path}/{name}")
    assert len(str(refused.value)) <= LONGEST
