"""`RetrievalEvaluation` takes what `predict` takes, and finds the embedding."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.support.autodiff import BACKEND
from tfdml.layers import ClassBoundaries, Proxies, as_similarities
from tfdml.losses import LearnedMarginLoss, MultiSimilarityLoss, ProxyAnchorLoss
from tfdml.metrics import RetrievalEvaluation, retrieval_metrics

pytestmark = pytest.mark.backend
tensorflow_only = pytest.mark.skipif(BACKEND != "tensorflow", reason="uses tf.data")

random = np.random.default_rng(0)
LABELS = np.repeat(np.arange(6), 4)
A, B = random.normal(size=(24, 4)), random.normal(size=(24, 3))
A, B = A.astype("float32"), B.astype("float32")


def two_inputs():
    inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((3,), name="b")}
    joined = layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, layers.Dense(5)(joined))
    model.compile("sgd", loss=MultiSimilarityLoss())
    return model


def one_input(*last):
    return keras.Sequential([keras.Input((4,)), layers.Dense(5), *last])


def measured(evaluation, model, x=A):
    """Return what the callback adds to the logs of an epoch that changed nothing."""
    evaluation.set_model(model)
    evaluation.on_train_begin()
    logs = {}
    evaluation.on_epoch_end(0, logs)
    return logs["val_map_at_r"]


def expected(embedder, x):
    embeddings = embedder.predict(x, verbose=0)
    return pytest.approx(retrieval_metrics(embeddings, LABELS, [1])["map_at_r"])


class Batches(keras.utils.PyDataset):
    """Batches of 10, of items in an order of its own at each reading."""

    def __init__(self, *parts):
        super().__init__()
        self._parts = parts

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(10 * index, 10 * index + 10)
        return tuple(
            keras.tree.map_structure(lambda a: a[rows], p) for p in self._parts
        )


@pytest.mark.parametrize("kind", ["dict", "lists", "frame", "batches"])
def test_model_of_several_inputs_is_measured(kind):
    pandas = pytest.importorskip("pandas")
    index = random.permutation(24)
    images = {
        "dict": {"a": A, "b": B},
        "lists": {"a": A.tolist(), "b": memoryview(B)},
        "frame": {"a": pandas.DataFrame(A, index=index), "b": B},
        "batches": Batches({"a": A, "b": B}),
    }[kind]
    model = two_inputs()
    received = measured(RetrievalEvaluation(images, LABELS, ks=(1,)), model)
    assert received == expected(model, {"a": A, "b": B})


def test_labels_come_with_their_images():
    order = random.permutation(24)
    model = one_input()
    evaluation = RetrievalEvaluation(Batches(A[order], LABELS[order]), ks=(1,))
    assert evaluation.queries == 0
    assert measured(evaluation, model) == expected(model, A)
    assert (evaluation.queries, evaluation.queries_without_positive) == (24, 0)


@tensorflow_only
@pytest.mark.parametrize("kind", ["known", "unknown", "pairs", "shuffled", "column"])
def test_data_set_of_tensorflow_is_measured(kind):
    import tensorflow as tf

    pairs = tf.data.Dataset.from_tensor_slices((A, LABELS))
    images = tf.data.Dataset.from_tensor_slices(A)
    stream, labels = {
        "known": (images.batch(10), LABELS),
        "unknown": (images.filter(lambda _: True).batch(10), LABELS),
        "pairs": (pairs.batch(10), None),
        "shuffled": (pairs.shuffle(24).batch(10), None),
        "column": (pairs.map(lambda x, y: (x, y[None], 1.0)).batch(10), None),
    }[kind]
    model = one_input()
    evaluation = RetrievalEvaluation(stream, labels, ks=(1,))
    for _ in range(2):
        assert measured(evaluation, model) == expected(model, A)


@tensorflow_only
def test_fit_is_evaluated_on_a_shuffled_data_set():
    import tensorflow as tf

    names = np.array(["wren", "jay", "tit", "owl", "kite", "rook"])[LABELS]
    pairs = tf.data.Dataset.from_tensor_slices((A, names)).shuffle(24).batch(7)
    model = one_input()
    model.compile("sgd", loss=MultiSimilarityLoss())
    callbacks = [
        RetrievalEvaluation(pairs, ks=(1,)),
        keras.callbacks.EarlyStopping("val_precision_at_1", mode="max"),
    ]
    history = model.fit(A, LABELS, verbose=0, callbacks=callbacks).history
    assert history["val_map_at_r"][-1] == expected(model, A)


@pytest.mark.parametrize("last", [Proxies, ClassBoundaries])
def test_last_layer_for_a_loss_is_left_out(last):
    model = one_input(last(6))
    loss = ProxyAnchorLoss() if last is Proxies else LearnedMarginLoss(6)
    model.compile("sgd", loss=loss)
    evaluation = RetrievalEvaluation(A, LABELS, ks=(1,))
    history = model.fit(A, LABELS, epochs=2, verbose=0, callbacks=[evaluation]).history
    embedder = keras.Model(model.inputs, model.layers[-1].input)
    assert history["val_map_at_r"][-1] == expected(embedder, A)


class OwnProxies(layers.Dense):
    def call(self, inputs):
        return as_similarities(super().call(inputs))


class Subclass(keras.Model):
    def __init__(self, *parts):
        super().__init__()
        self.parts = list(parts)

    def call(self, inputs):
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class Several(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return {"rows": self.dense(inputs), "inputs": inputs}


def several_outputs():
    inputs = keras.Input((4,))
    return keras.Model(inputs, [layers.Dense(3)(inputs), layers.Dense(2)(inputs)])


@pytest.mark.parametrize(
    ("make", "received"),
    [
        (several_outputs, "2 outputs"),
        (Several, "a dict of outputs"),
        (lambda: one_input(OwnProxies(6)), "similarities with proxies"),
        (lambda: Subclass(layers.Dense(3), Proxies(6)), "similarities with proxies"),
        (lambda: one_input(keras.Sequential([Proxies(6)])), "a model that ends in"),
    ],
)
def test_model_without_one_embedding_is_refused_before_it_trains(make, received):
    model = make()
    evaluation = RetrievalEvaluation(A, LABELS, ks=(1,))
    with pytest.raises(ValueError, match=rf"must .*{received}.*as `embedder`"):
        measured(evaluation, model)
    embedder = one_input()
    evaluation = RetrievalEvaluation(A, LABELS, ks=(1,), embedder=embedder)
    assert measured(evaluation, model) == expected(embedder, A)


def test_subclass_that_embeds_is_measured():
    model = Subclass(layers.Dense(3))
    assert measured(RetrievalEvaluation(A, LABELS, ks=(1,)), model) == expected(
        model, A
    )


def test_roles_need_one_order():
    model = one_input()
    batches = Batches(A, LABELS)
    roles = {"is_query": np.arange(24) % 2 == 0, "groups": np.arange(24) // 2}
    evaluation = RetrievalEvaluation(batches, ks=(1,), **roles)
    received = measured(evaluation, model)
    embeddings = model.predict(A, verbose=0)
    found = retrieval_metrics(embeddings, LABELS, [1], **roles)
    assert received == pytest.approx(found["map_at_r"])
    batches._parts = (A[::-1], LABELS[::-1])
    with pytest.raises(ValueError, match="must come in one order"):
        evaluation.on_epoch_end(1, {})


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (A, None, "`labels` must be given with arrays.*None"),
        (iter([A]), LABELS, "`images` must be read again.*list_iterator"),
        (None, LABELS, "`images` must be an array or a sequence. Received: None"),
        ({"a": A, "b": B[:5]}, LABELS, "for each of the 5 images. Received: 24"),
        ({}, LABELS, "for each of the 0 images. Received: 24"),
        (A, LABELS[:4], "for each of the 24 images. Received: 4"),
        (A, [None] * 24, "missing values.*None in row 0"),
    ],
)
def test_other_items_are_refused_at_once(images, labels, message):
    with pytest.raises(ValueError, match=message):
        RetrievalEvaluation(images, labels, ks=(1,))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (Batches(A), None, "`labels` must be given with a data set of images alone"),
        (Batches(A, LABELS), LABELS, r"`labels` must be left out .* \(x, y\)"),
    ],
)
def test_data_set_that_does_not_fit_is_refused_before_training(images, labels, message):
    evaluation = RetrievalEvaluation(images, labels, ks=(1,))
    with pytest.raises(ValueError, match=message):
        measured(evaluation, one_input())


def test_data_set_of_another_length_is_told():
    evaluation = RetrievalEvaluation(Batches(A), LABELS[:-4], ks=(1,))
    with pytest.raises(ValueError, match="the 24 images"):
        measured(evaluation, one_input())


@tensorflow_only
def test_data_set_without_an_end_is_refused():
    import tensorflow as tf

    endless = tf.data.Dataset.from_tensor_slices((A, LABELS)).repeat().batch(8)
    with pytest.raises(ValueError, match="`images` must end: limit it by `take`"):
        RetrievalEvaluation(endless)
