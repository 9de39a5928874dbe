# The public names; `lazy_loader` reads this file when one is first used.
from ._capped import CappedClassBatches as CappedClassBatches
from ._design import BatchDesign as BatchDesign
from ._design import encode_labels as encode_labels
from ._groups import GroupBatches as GroupBatches
from ._image_batches import image_batches as image_batches
from ._importance import balanced_eta as balanced_eta
from ._importance import group_importance as group_importance
from ._importance import random_pair_importance as random_pair_importance
from ._n_pairs import NPairBatches as NPairBatches
from ._n_pairs import class_means as class_means
from ._neighbors import NeighborBatches as NeighborBatches
from ._pairs import PairBatches as PairBatches
from ._sequence import BatchSequence as BatchSequence
from ._sequence import gathered_dataset as gathered_dataset
from ._sequence import index_dataset as index_dataset
from ._shuffled import ShuffledBatches as ShuffledBatches
