"""Batch designs: which images share a batch. Seeded, NumPy only, opens no file."""

from tfdml.batch_designs._capped import CappedClassBatches
from tfdml.batch_designs._design import BatchDesign, encode_labels
from tfdml.batch_designs._groups import GroupBatches
from tfdml.batch_designs._n_pairs import NPairBatches, class_means
from tfdml.batch_designs._neighbors import NeighborBatches
from tfdml.batch_designs._pairs import PairBatches
from tfdml.batch_designs._shuffled import ShuffledBatches

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
