"""Batch designs: which images share a batch. Seeded, NumPy only, opens no file."""

from tfdml.batch_designs.capped import CappedClassBatches
from tfdml.batch_designs.design import BatchDesign, encode_labels
from tfdml.batch_designs.groups import GroupBatches
from tfdml.batch_designs.n_pairs import NPairBatches, class_means
from tfdml.batch_designs.neighbors import NeighborBatches
from tfdml.batch_designs.pairs import PairBatches
from tfdml.batch_designs.shuffled import ShuffledBatches

__all__ = [
    "BatchDesign",
    "CappedClassBatches",
    "GroupBatches",
    "NPairBatches",
    "NeighborBatches",
    "PairBatches",
    "ShuffledBatches",
    "class_means",
    "encode_labels",
]
