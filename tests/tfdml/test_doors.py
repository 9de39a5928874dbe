"""One table of what the public doors take, checked with drawn arguments."""

import hypothesis.extra.numpy as arrays
import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.autodiff import BACKEND
from tfdml.batch_designs import (
    BatchSequence,
    CappedClassBatches,
    GroupBatches,
    NeighborBatches,
    NPairBatches,
    PairBatches,
    class_means,
    encode_labels,
    gathered_dataset,
)
from tfdml.layers import as_similarities
from tfdml.losses import ContrastiveLoss, LogRatioLoss, ProxyAnchorLoss
from tfdml.messages import LONGEST
from tfdml.metrics import (
    PrecisionAtK,
    RetrievalEvaluation,
    RetrievalTask,
    clustering_metrics,
    hubness,
    label_distance_metrics,
    match_scores,
    pair_counts,
    retrieval_metrics,
    verification_metrics,
)
from tfdml.neighbors import nearest_neighbors

pandas = pytest.importorskip("pandas")
quick = settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck)
)

N = 8
ROWS = np.random.default_rng(0).normal(size=(N, 3)).astype("float32")
CODES = np.repeat(np.arange(4), 2)


# What labels may be. Each kind makes, of class codes, labels of these classes.


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _strided(array):
    return np.repeat(array, 2)[::2]


def _index(count):
    return np.random.default_rng(count).permutation(count)


TYPES = {
    **{f"int{b}": f"int{b}" for b in (8, 16, 32, 64)},
    **{f"uint{b}": f"uint{b}" for b in (8, 16, 32, 64)},
    **{f"float{b}": f"float{b}" for b in (16, 32, 64)},
}
CONTAINERS = {
    "array": np.asarray,
    "read-only": _read_only,
    "strided": _strided,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "column": lambda a: a[:, None],
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "list of NumPy's": list,
    "memoryview": memoryview,
    "masked without a mask": np.ma.array,
    "series": lambda a: pandas.Series(a, index=_index(len(a))),
    # pandas makes no categories of float16.
    "category": lambda a: pandas.Series(
        a.astype("float32") if a.dtype == "float16" else a,
        index=_index(len(a)),
        dtype="category",
    ),
    "frame": lambda a: pandas.DataFrame({"label": a}, index=_index(len(a))),
    "tensor": keras.ops.convert_to_tensor,
}
# Strings and bools are no numbers: losses take bools alone, and what numbers hold.
NAMES = {
    "list": lambda a: [f"class {i}" for i in a],
    "array": lambda a: np.array([f"class {i}" for i in a]),
    "objects": lambda a: np.array([f"class {i}" for i in a], object),
    "bytes": lambda a: [b"%d" % i for i in a],
    "series": lambda a: pandas.Series([f"{i}" for i in a], index=_index(len(a))),
    "category": lambda a: pandas.Series([f"{i}" for i in a], dtype="category"),
}
BROKEN = {
    "None": lambda a: [None, *a.tolist()[1:]],
    "NaN": lambda a: np.where(np.arange(len(a)) == 1, np.nan, a),
    "infinity": lambda a: np.where(np.arange(len(a)) == 1, np.inf, a),
    "fraction": lambda a: a + 0.5,
    "complex": lambda a: a + 1j,
    "dates": lambda a: a.astype("datetime64[D]"),
    "mixed": lambda a: ["a", *a.tolist()[1:]],
    "one-hot": lambda a: np.eye(len(a)),
    "scalar": lambda a: 3,
    "nothing": lambda a: None,
    "set": lambda a: set(a.tolist()),
    "dict": lambda a: dict(enumerate(a.tolist())),
    "generator": lambda a: (i for i in a.tolist()),
    "ragged": lambda a: [[1], [1, 2], *a.tolist()[2:]],
    "masked": lambda a: np.ma.array(a, mask=np.arange(len(a)) == 1),
    "objects": lambda a: [object() for _ in a],
    "text": lambda a: "x" * 100_000,
    "missing": lambda a: pandas.Series([1, None] + [2] * (len(a) - 2), dtype="Int64"),
    "missing name": lambda a: pandas.Series(["a", None] + ["b"] * (len(a) - 2)),
}


def evaluation(labels):
    found = RetrievalEvaluation(ROWS, labels, ks=(1,))
    return found.queries


def metric(labels):
    found = PrecisionAtK()
    found.update_state(labels, ROWS)
    return found.result()


# Doors that take labels of any kind, and those that take numbers alone. Each returns
# what depends on the classes alone, not on their names.
ANY = {
    "encode_labels": lambda y: encode_labels(y)[0],
    "GroupBatches": lambda y: GroupBatches(y, 2, 2).batches(0),
    "CappedClassBatches": lambda y: CappedClassBatches(y, 4, 2).batches(0),
    "PairBatches": lambda y: PairBatches(y, 2).batches(0),
    "NPairBatches": lambda y: NPairBatches(y, 2).batches(0),
    "class_means": lambda y: class_means(ROWS, y),
    "retrieval_metrics": lambda y: retrieval_metrics(ROWS, y, [1])["map_at_r"],
    "groups": lambda y: retrieval_metrics(ROWS, [0, 0, 1, 0] * 2, [1], groups=y)[
        "map_at_r"
    ],
    "RetrievalTask": lambda y: RetrievalTask(ROWS, y).class_of,
    "RetrievalEvaluation": evaluation,
    "clustering_metrics": lambda y: clustering_metrics(y, CODES)["pairwise_f1"],
    "pair_counts": lambda y: pair_counts(ROWS, y).positives,
    "verification_metrics": lambda y: verification_metrics(ROWS, y)["pair_auc"],
    "match_scores": lambda y: match_scores(ROWS, y).is_positive,
}
NUMBERS = {
    "ContrastiveLoss": lambda y: ContrastiveLoss()(y, ROWS),
    "PrecisionAtK": metric,
}
IDS = {
    "ProxyAnchorLoss": lambda y: ProxyAnchorLoss()(
        y, as_similarities(keras.ops.convert_to_tensor(ROWS @ ROWS[:4].T))
    ),
}
GATHERED = {
    "BatchSequence": lambda y: BatchSequence(GroupBatches(CODES, 2, 2), ROWS, y)[0][1],
}
if BACKEND == "tensorflow":
    GATHERED["gathered_dataset"] = lambda y: next(
        iter(gathered_dataset(GroupBatches(CODES, 2, 2), ROWS, y))
    )[1]


def refused(call, *arguments, words="must"):
    """Call a door; return whether it refused the arguments, in words."""
    try:
        call(*arguments)
    except (TypeError, ValueError) as error:
        message = str(error)
    else:
        return False
    assert words in message, message
    assert len(message) <= LONGEST, message
    return True


def number(result):
    return np.ravel(keras.ops.convert_to_numpy(result)).astype("float64")


@quick
@given(
    st.permutations(CODES.tolist()),
    st.sampled_from(sorted(TYPES)),
    st.sampled_from(sorted(CONTAINERS)),
)
@pytest.mark.parametrize("door", [*ANY, *NUMBERS, *IDS, *GATHERED])
def test_door_takes_numbers_in_whatever_holds_them(door, codes, kind, container):
    call = {**ANY, **NUMBERS, **IDS, **GATHERED}[door]
    codes = np.array(codes)
    labels = codes.astype(TYPES[kind])
    if container == "big-endian" and door not in ANY:
        labels = CONTAINERS["array"](labels)  # of which no backend makes tensors
    else:
        labels = CONTAINERS[container](labels)
    np.testing.assert_allclose(number(call(labels)), number(call(codes)), rtol=1e-6)


@quick
@given(st.permutations(CODES.tolist()), st.sampled_from(sorted(NAMES)))
@pytest.mark.parametrize("door", [*ANY, *NUMBERS, *IDS, *GATHERED])
def test_door_takes_names_or_says_how_to_number_them(door, codes, kind):
    codes = np.array(codes)
    names = NAMES[kind](codes)
    if door in ANY:
        np.testing.assert_allclose(number(ANY[door](names)), number(ANY[door](codes)))
    else:
        with pytest.raises(ValueError, match="encode_labels") as raised:
            {**NUMBERS, **IDS, **GATHERED}[door](names)
        assert len(str(raised.value)) <= LONGEST


@quick
@given(st.permutations(CODES.tolist()), st.sampled_from(sorted(BROKEN)))
@pytest.mark.parametrize("door", [*ANY, *NUMBERS, *IDS])
def test_door_refuses_all_else_in_words(door, codes, kind):
    call = {**ANY, **NUMBERS, **IDS}[door]
    if door == "groups" and kind == "nothing":
        return  # no groups
    with pytest.raises(ValueError, match=r"must .*[Rr]eceived") as raised:
        call(BROKEN[kind](np.array(codes)))
    assert len(str(raised.value)) <= LONGEST


# Embeddings


ON_ROWS = {
    "retrieval_metrics": lambda x: retrieval_metrics(x, CODES, [1])["map_at_r"],
    "pair_counts": lambda x: pair_counts(x, CODES).positives.sum(),
    "match_scores": lambda x: match_scores(x, CODES).similarity,
    "label_distance_metrics": lambda x: label_distance_metrics(x, CODES, [1])[
        "ndcg_at_1"
    ],
    "nearest_neighbors": lambda x: nearest_neighbors(x, x, 2)[1],
    "class_means": lambda x: class_means(x, CODES),
    "NeighborBatches": lambda x: NeighborBatches(x, 4, neighbors=1).batches(0),
}
HOLDERS = {
    "array": np.asarray,
    "read-only": _read_only,
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed twice": lambda a: a[::-1][::-1],
    "list": lambda a: a.tolist(),
    "list of arrays": list,
    "memoryview": memoryview,
    "frame": lambda a: pandas.DataFrame(a, index=_index(len(a))),
    "tensor": keras.ops.convert_to_tensor,
}
BAD_ROWS = {
    "text": lambda a: a.astype(str),
    "objects": lambda a: [[object()] * 3] * len(a),
    "complex": lambda a: a + 1j,
    "NaN": lambda a: np.where(np.arange(len(a))[:, None] == 1, np.nan, a),
    "infinity": lambda a: np.where(np.arange(len(a))[:, None] == 1, np.inf, a),
    "scalar": lambda a: 3.0,
    "nothing": lambda a: None,
    "generator": lambda a: (row for row in a),
    "ragged": lambda a: [[1.0], *a.tolist()[1:]],
    "masked": lambda a: np.ma.masked_greater(a, 0),
    "long text": lambda a: "x" * 100_000,
}


@quick
@given(
    st.sampled_from(sorted(HOLDERS)),
    st.sampled_from(["float32", "float64", "int8", "int64", "uint8"]),
)
@pytest.mark.parametrize("door", ON_ROWS)
def test_door_takes_rows_in_whatever_holds_them(door, holder, kind):
    rows = (np.abs(ROWS) * 50 + 1).astype(kind)
    received = ON_ROWS[door](HOLDERS[holder](rows))
    np.testing.assert_allclose(number(received), number(ON_ROWS[door](rows)), rtol=1e-6)


@quick
@given(st.sampled_from(sorted(BAD_ROWS)))
@pytest.mark.parametrize("door", ON_ROWS)
def test_door_refuses_other_rows_in_words(door, kind):
    if door == "class_means" and kind in ("NaN", "infinity"):
        return  # a mean of them
    with pytest.raises(ValueError, match=r"must .*[Rr]eceived") as raised:
        ON_ROWS[door](BAD_ROWS[kind](ROWS))
    assert len(str(raised.value)) <= LONGEST


# Batches of few rows


@quick
@given(st.integers(0, 3), st.integers(1, 3))
def test_batches_down_to_none_are_computed_or_refused(rows, columns):
    labels, embeddings = np.zeros(rows, int), np.ones((rows, columns), "float32")
    for loss in (ContrastiveLoss(), LogRatioLoss(), ProxyAnchorLoss()):
        if not refused(loss, labels, embeddings) and rows:
            assert np.isfinite(float(loss(labels, embeddings)))
    for door in (retrieval_metrics, pair_counts, verification_metrics, match_scores):
        refused(door, embeddings, labels, words="eceived")


@quick
@given(
    arrays.arrays(
        st.one_of(arrays.scalar_dtypes(), arrays.unicode_string_dtypes()),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_any_array_is_taken_or_refused_in_words(array):
    doors = (
        encode_labels,
        lambda x: retrieval_metrics(x, np.zeros(len(np.atleast_1d(x)), int), [1]),
        lambda x: hubness(x, 4),
        lambda x: BatchSequence(GroupBatches([0, 0, 1, 1], 2, 2), x, x),
        lambda x: RetrievalEvaluation(x, [0, 0, 1, 1], ks=(1,)),
    )
    for door in doors:
        refused(door, array)
