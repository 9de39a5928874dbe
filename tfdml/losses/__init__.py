"""Losses for `model.compile(loss=...)`: labels and embeddings of a batch go in."""

from tfdml.losses.base import MetricLoss, PairLoss
from tfdml.losses.ranking import TopKPrecisionLoss, precision_loss

__all__ = ["MetricLoss", "PairLoss", "TopKPrecisionLoss", "precision_loss"]
