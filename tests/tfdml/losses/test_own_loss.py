"""A user's own loss has a config and a registration without writing either."""

import inspect
import json
import re

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.all_losses import ENTRIES
from tests.support.loss_entry import batch, rebuilt
from tfdml import losses, tfa
from tfdml.losses import MetricLoss, PairLoss, TripletLoss, check_pairwise
from tfdml.ops import squared_label_distance

pytestmark = pytest.mark.backend


class ScaledDifference(PairLoss):
    """The sum of negative minus positive similarities."""

    def __init__(self, scale=1.0, *, absolute=False, transform=None, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self._absolute = absolute
        self.transform = transform

    def pair_loss(self, scores, positives, negatives):
        costs = ops.where(negatives, scores, ops.where(positives, -scores, 0))
        return self.scale * ops.sum(costs, axis=1)


class NamedTripletLoss(TripletLoss, package="my_package"):
    """A triplet loss with one more argument."""

    def __init__(self, margin=0.2, *, remark="", **kwargs):
        super().__init__(margin, **kwargs)
        self.remark = remark


def test_config_holds_the_arguments_of_all_constructors():
    loss = NamedTripletLoss(0.3, remark="own", distance="cosine", reduction="sum")
    assert loss.get_config() == {
        "margin": 0.3,
        "remark": "own",
        "average": "valid",
        "distance": "cosine",
        "normalize": True,
        "reduction": "sum",
        "name": "named_triplet_loss",
        "dtype": "float32",
    }


def test_config_of_a_constructor_without_further_arguments_holds_its_own_alone():
    class FixedTripletLoss(TripletLoss):
        def __init__(self, average="valid"):
            super().__init__(0.5, average=average)

    loss = FixedTripletLoss("active")
    assert loss.get_config() == {"average": "active"}
    assert FixedTripletLoss.from_config(loss.get_config()).average == "active"


def test_signature_shows_the_arguments_of_the_parents():
    parameters = inspect.signature(NamedTripletLoss).parameters
    assert list(parameters) == [
        *("margin", "remark", "average", "distance", "normalize"),
        *("reduction", "name", "dtype"),
    ]
    assert parameters["margin"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert parameters["distance"].kind is inspect.Parameter.KEYWORD_ONLY
    assert list(inspect.signature(TripletLoss()).parameters)[:2] == ["y_true", "y_pred"]


def test_loss_is_registered_under_its_package():
    registered = keras.saving.get_registered_name
    assert registered(ScaledDifference) == "Custom>ScaledDifference"
    assert registered(NamedTripletLoss) == "my_package>NamedTripletLoss"
    assert registered(TripletLoss) == "tfdml>TripletLoss"
    assert registered(tfa.TripletHardLoss) == "Addons>TripletHardLoss"


def test_decorator_of_keras_chooses_another_package():
    @keras.saving.register_keras_serializable("elsewhere")
    class Decorated(ScaledDifference):
        pass

    assert keras.saving.get_registered_name(Decorated) == "elsewhere>Decorated"
    stored = keras.saving.serialize_keras_object(Decorated(2.0))
    assert type(keras.saving.deserialize_keras_object(stored)) is Decorated


def test_redefined_loss_is_the_one_that_loads():
    def define():
        class Again(ScaledDifference):
            pass

        return Again

    first, second = define(), define()
    stored = keras.saving.serialize_keras_object(first(3.0))
    loaded = keras.saving.deserialize_keras_object(stored)
    assert type(loaded) is second
    assert loaded.scale == 3.0


def test_private_base_class_is_not_registered():
    class _Base(ScaledDifference):
        pass

    assert keras.saving.get_registered_name(_Base) == "_Base"
    assert keras.saving.get_registered_object("Custom>_Base") is None


def test_model_is_saved_and_loaded_with_the_loss(tmp_path):
    inputs = keras.Input((6,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    loss = ScaledDifference(2.0, absolute=True, transform=squared_label_distance)
    model.compile("sgd", loss=loss)
    labels, rows = batch()
    expected = model.evaluate(rows, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.loss) is ScaledDifference
    assert loaded.loss.get_config() == loss.get_config()
    assert loaded.loss.transform is squared_label_distance
    json.dumps(loss.get_config())
    assert loaded.evaluate(rows, labels, verbose=0) == pytest.approx(expected)


def test_argument_without_an_attribute_is_reported():
    class Forgetful(ScaledDifference):
        def __init__(self, bias=0.0, **kwargs):
            super().__init__(**kwargs)

    with pytest.raises(AttributeError, match="Forgetful must have an attribute `bias`"):
        Forgetful().get_config()


def test_own_get_config_may_add_what_no_attribute_holds():
    class Explicit(ScaledDifference):
        def __init__(self, bias=0.0, **kwargs):
            super().__init__(**kwargs)
            self.kept = bias

        def get_config(self):
            return {**super().get_config(), "bias": self.kept}

    loss = Explicit.from_config(Explicit(0.5, scale=2.0).get_config())
    assert (loss.kept, loss.scale) == (0.5, 2.0)


def test_loss_that_overrides_call_is_not_pairwise_unless_it_says_so():
    def call(self, labels, embeddings):
        return ops.zeros_like(embeddings[:, 0])

    class Changed(ScaledDifference):
        pass

    overriding = type("Overriding", (ScaledDifference,), {"call": call})
    declared = type(
        "Declared", (ScaledDifference,), {"call": call, "is_pairwise": True}
    )
    check_pairwise(Changed())
    check_pairwise(declared())
    with pytest.raises(TypeError, match=r"`pair_loss` alone.*Overriding"):
        check_pairwise(overriding())


def public_losses():
    for module in (losses, tfa):
        for name in module.__all__:
            cls = getattr(module, name)
            if inspect.isclass(cls) and issubclass(cls, MetricLoss):
                yield cls


def test_losses_take_one_positional_argument_at_most():
    for cls in set(public_losses()) - {getattr(tfa, name) for name in tfa.__all__}:
        kinds = [p.kind for p in inspect.signature(cls).parameters.values()]
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert kinds.count(positional) <= 1, cls
    with pytest.raises(TypeError, match="positional arguments"):
        losses.HardTripletLoss(0.1, "cosine")


@pytest.mark.parametrize("value", ["no", 1, None])
def test_booleans_are_checked_in_every_loss(value):
    checked = 0
    for entry in ENTRIES.values():
        config = entry.loss.get_config()
        for name in [name for name, x in config.items() if isinstance(x, bool)]:
            rule = f"`{name}` must be True or False. Received: {name}={value!r}."
            with pytest.raises(ValueError, match=re.escape(rule)):
                rebuilt(entry.loss, **{name: value})
            checked += 1
    assert checked > 10


def test_numpy_booleans_are_booleans():
    loss = losses.ContrastiveLoss(normalize=np.bool_(False))
    assert loss.normalize is False
