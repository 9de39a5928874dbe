"""Hold the tables of a recipe except `[fit]`."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from tfdml.messages import shown

from .checks import RecipeError, check_range, check_word


@dataclass(frozen=True)
class Data:
    """`[data]`: where the images are and how their classes are split.

    `images` is a folder `class/image`, or a manifest, a file that ends in `.csv`
    (docs/data-sets.md). The paths in a manifest are below `root`, by default the folder
    of the manifest. A manifest says itself which images test and validate; where
    it has no validation images, `validation_fraction` of its training classes do.

    Classes are ordered by the SHA-256 of "split_seed/class". The first `test_fraction`
    of them are for testing, the next `validation_fraction` for validation, the rest for
    training; no class is in two splits. A fraction of 0 leaves its split out.
    """

    images: str
    test_fraction: float = 0.5
    validation_fraction: float = 0.05
    split_seed: int = 0
    skip_unreadable: bool = False
    root: str = ""

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.images:
            raise RecipeError(
                "`images` must name a folder or a manifest. Received: ''."
            )
        if self.root and not self.images.lower().endswith(".csv"):
            raise RecipeError(
                "`root` must be left out with a folder of images: it is for the paths "
                f"in a manifest. Received: {shown(self.root)}."
            )
        check_range(self, "test_fraction", 0, 1)
        check_range(self, "validation_fraction", 0, 1)
        if self.test_fraction + self.validation_fraction >= 1:
            raise RecipeError(
                "`test_fraction` + `validation_fraction` must be below 1: the rest is "
                f"for training. Received: {self.test_fraction} + "
                f"{self.validation_fraction}."
            )


@dataclass(frozen=True)
class Embedder:
    """`[embedder]`: the arguments of `tfdml.models.build_embedder`."""

    image_size: int = 64
    embedding_dimension: int = 128
    backbone: str = "residual"
    weights: str = ""
    pooling: str = "average"
    widths: tuple[int, ...] = (32, 64, 128, 256)
    blocks: int = 1
    stem_stride: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Check what can be checked without building the network."""
        check_range(self, "image_size", 8)
        check_range(self, "embedding_dimension", 1)
        check_range(self, "dropout", 0, 1)


LABEL_DISTANCES = ("squared_euclidean", "segmentation", "caption")
"""What `label_distance` may be; `training.run.build_batches` has the functions."""


@dataclass(frozen=True)
class Loss:
    """`[loss]`: a loss of `tfdml.losses` by its class name, and its arguments.

    For LogRatioLoss and ContinuousTripletLoss, `label_distance` is "squared_euclidean"
    (poses), "segmentation" (room layouts) or "caption".
    """

    name: str = "TopKPrecisionLoss"
    arguments: dict[str, Any] = field(default_factory=dict)
    on_proxies: bool = False
    is_weighted: bool = False
    label_distance: str = "squared_euclidean"

    def __post_init__(self) -> None:
        """Check the values that are not those of the loss itself."""
        check_word(self, "label_distance", LABEL_DISTANCES)


@dataclass(frozen=True)
class Proxies:
    """`[proxies]`: the layer `tfdml.layers.Proxies`, with a proxy loss alone.

    Proxies learn with `learning_rate_multiplier` times the learning rate, under every
    optimizer; weight decay follows. `center_penalty` is the tau of SoftTriple.
    """

    centers_per_class: int = 1
    learning_rate_multiplier: float = 1.0
    center_penalty: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        check_range(self, "centers_per_class", 1)
        check_range(self, "center_penalty", 0)
        if not 0 < self.learning_rate_multiplier < math.inf:
            raise RecipeError(
                "`learning_rate_multiplier` must be above 0 and finite. "
                f"Received: {self.learning_rate_multiplier}."
            )


@dataclass(frozen=True)
class Images:
    """`[images]`: what the network is shown of an image. See docs/images.md.

    With `resize` = 0 an image is squashed to the embedder's size. Otherwise its
    shorter side gets that many pixels (with `pad`, after it was padded to a square) and
    the center is cut out. In training, `crop` = "position" cuts out a random place of
    it instead, "resized" a random region of at least `min_scale` of its area and of any
    shape between 3:4 and 4:3. Decoded images are kept in memory up to
    `cache_megabytes`. An image of more than `max_pixels` pixels cannot be read.
    With `scaled_decoding`, JPEGs are decoded no larger than the network needs.
    `workers` processes read; 0: threads of one, -1: as `tfdml.images.ImageReader`
    chooses. What is read does not depend on it.
    """

    resize: int = 0
    pad: bool = False
    crop: str = "none"
    min_scale: float = 0.16
    cache_megabytes: int = 2048
    max_pixels: int = 100_000_000
    scaled_decoding: bool = False
    workers: int = -1

    def __post_init__(self) -> None:
        """Check what `tfdml.images.View` and `RandomView` do not."""
        check_range(self, "cache_megabytes", 0)
        check_range(self, "max_pixels", 1)
        check_range(self, "workers", -1)


DESIGNS = {
    "groups": ("images_per_class", "classes_per_batch", "small_classes"),
    "pairs": ("batch_size", "positive_probability"),
    "capped": ("batch_size", "images_per_class"),
    "n_pairs": ("classes_per_batch",),
    "neighbors": ("batch_size", "neighbors", "anchors"),
    "shuffled": ("batch_size",),
}
"""The keys of each `design`; `training.run.build_batches` has the classes."""


@dataclass(frozen=True)
class Batches:
    """`[batches]`: which images share a batch (docs/batch-designs.md).

    `design` and the keys that go with it:

    - "groups": m = `images_per_class` of each of n = `classes_per_batch` classes, both
      at least 2; with fewer than n training classes a batch holds all of them.
      `small_classes` = "repeat" or "leave_out".
    - "capped": `batch_size` images, at most `images_per_class` of a class.
    - "n_pairs": 2 images of each of `classes_per_batch` classes.
    - "pairs": `batch_size` / 2 pairs, positive with `positive_probability`.
    - "neighbors", for continuous labels: `batch_size` images, of which `anchors` and
      the nearest `neighbors` of each.
    - "shuffled": `batch_size` images as they come, for losses on proxies.

    With `importance_weights` a weighted contrastive loss undoes what the design
    ("groups" or "pairs") favors.
    """

    design: str = "groups"
    images_per_class: int = 4
    classes_per_batch: int = 16
    small_classes: str = "repeat"
    batch_size: int = 64
    positive_probability: float = 0.5
    neighbors: int = 5
    anchors: int = 1
    importance_weights: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        check_word(self, "design", tuple(DESIGNS))
        check_word(self, "small_classes", ("repeat", "leave_out"))
        check_range(self, "images_per_class", 2)
        check_range(self, "classes_per_batch", 2)
        check_range(self, "batch_size", 2)
        check_range(self, "positive_probability", 0, 1)
        check_range(self, "neighbors", 1)
        check_range(self, "anchors", 1)
        taken = ("design", "importance_weights", *DESIGNS[self.design])
        for table_field in dataclasses.fields(self):
            name = table_field.name
            if name not in taken and getattr(self, name) != table_field.default:
                raise RecipeError(
                    f"`{name}` does not go with the design {shown(self.design)}, which "
                    f"takes {', '.join(f'`{key}`' for key in DESIGNS[self.design])}. "
                    f"Received: {shown(getattr(self, name))}."
                )
        if self.design == "pairs" and self.batch_size % 2:
            raise RecipeError(
                f"`batch_size` must be even for pairs. Received: {self.batch_size}."
            )
