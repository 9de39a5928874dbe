"""No AutoGraph warning reaches a user who calls a loss in a `tf.function`."""

import contextlib
import io
import logging

import pytest
from keras import ops

from tests.support.all_losses import ENTRIES
from tests.support.autodiff import BACKEND
from tests.support.loss_entry import batch
from tfdml.losses import MetricLoss, PairLoss, pair_weights, query_gallery_loss

if BACKEND != "tensorflow":
    pytest.skip("AutoGraph is TensorFlow's", allow_module_level=True)

import tensorflow as tf


@contextlib.contextmanager
def silent_autograph():
    """Fail if AutoGraph logs anything meanwhile."""
    messages = io.StringIO()
    handler = logging.StreamHandler(messages)
    tf.get_logger().addHandler(handler)
    try:
        yield
    finally:
        tf.get_logger().removeHandler(handler)
    assert messages.getvalue() == ""


class AnnotatedLoss(PairLoss):
    """A loss with an annotated variable in a branch, which AutoGraph refuses."""

    def pair_loss(self, scores, positives, negatives):
        if self.reduction == "sum":
            scale: float = 1.0
        else:
            scale: float = 2.0
        return scale * ops.sum(ops.where(negatives, scores, 0), axis=1)


def trace(loss, labels, rows):
    @tf.function
    def step(labels, rows):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            value = loss(labels, rows)
        return tape.gradient(value, rows)

    step.get_concrete_function(tf.constant(labels), tf.constant(rows))


def test_every_loss_is_called_through_the_door_without_autograph():
    for name, entry in ENTRIES.items():
        assert type(entry.loss).__call__ is MetricLoss.__call__, name


TRACED = ("ContrastiveLoss-raw", "LogRatioLoss", "ProxyAnchorLoss")


@pytest.mark.parametrize(
    "name",
    [
        name if name in TRACED else pytest.param(name, marks=pytest.mark.full)
        for name in ENTRIES
    ],
)
def test_loss_in_a_function_of_the_user_gives_no_warning(name):
    with silent_autograph():
        trace(ENTRIES[name].value, *batch())


def test_own_loss_that_autograph_cannot_translate_gives_no_warning():
    with silent_autograph():
        trace(AnnotatedLoss(), *batch())


def test_functions_on_losses_give_no_warning():
    labels, rows = batch()
    with silent_autograph():
        trace(
            lambda y, x: query_gallery_loss(AnnotatedLoss(), y, x, y, x), labels, rows
        )
        trace(lambda y, x: pair_weights(AnnotatedLoss(), y, x), labels, rows)
