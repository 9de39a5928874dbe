"""List the sets of images, with their splits, augmentation and training."""

import copy
from dataclasses import dataclass

from benchmarks.papers.metrics import CLASSES, LABELS, Metrics
from benchmarks.papers.runs import Tables


@dataclass(frozen=True)
class PaperSet:
    """A set of images.

    Args:
        tables: `[data]` and `[augmentation]` of its recipes.
        is_continuous: Whether its labels have distances instead of classes.
    """

    tables: Tables
    is_continuous: bool = False

    @property
    def metrics(self) -> Metrics:
        """The metrics that are reported of it."""
        return LABELS if self.is_continuous else CLASSES


SETS = {
    "emoji": PaperSet(
        {
            "data": {"test_fraction": 0.5, "validation_fraction": 0.1},
            "augmentation": {
                "zoom": 0.2,
                "shift": 0.08,
                "saturation": 0.7,
                "greyscale": 0.3,
            },
        }
    ),
    "furniture": PaperSet(
        {
            "data": {"validation_fraction": 0.1},
            "augmentation": {"zoom": 0.1, "flip": True, "brightness": 0.1},
        }
    ),
    "glyphs": PaperSet(
        {
            "data": {"validation_fraction": 0.1},
            "augmentation": {"zoom": 0.2, "shift": 0.08},
        }
    ),
    "pose": PaperSet(
        {
            # Three of ten clips: each needs others to be found in.
            "data": {"validation_fraction": 0.3},
            "augmentation": {"brightness": 0.1},
        },
        is_continuous=True,
    ),
}
"""Settings as in training/recipes/small, which has none of glyphs."""

_TRAINED: Tables = {
    "embedder": {
        "image_size": 96,
        "embedding_dimension": 128,
        "backbone": "MobileNet",
        "weights": "imagenet",
    },
    "fit": {
        "steps": 1500,
        "steps_per_epoch": 100,
        "optimizer": "adam",
        "weight_decay": 0.0,
        "warmup_steps": 50,
        "freeze_batch_norm": True,
    },
}


def tables_of(name: str, *changes: Tables) -> Tables:
    """Return the tables of a recipe.

    Args:
        name: Which set.
        *changes: Keys of tables that are not as usual; the later ones count.
    """
    tables = copy.deepcopy(SETS[name].tables | _TRAINED)
    tables["data"]["images"] = name
    for change in changes:
        for table, keys in change.items():
            tables[table] = tables.get(table, {}) | keys
    return tables
