"""Hold the tables of a recipe except `[fit]`."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from tfdml.messages import shown

from .checks import RecipeError, check_fields, limited, one_of
from .paper_tables import PAPER_TABLES


@dataclass(frozen=True)
class Data:
    """`[data]`: where the images are and how their classes are split.

    `images` is a folder `class/image`, or a manifest, a file that ends in `.csv`
    (docs/data-sets.md). The paths in a manifest are below `root`, by default the folder
    of the manifest. A manifest says itself which images test and validate; where
    it has no validation images, `validation_fraction` of its training classes do. With
    `whole_images` a manifest with boxes, which images are cut to, is refused.

    Classes are ordered by the SHA-256 of "split_seed/class". The first `test_fraction`
    of them are for testing, the next `validation_fraction` for validation, the rest for
    training; no class is in two splits. A fraction of 0 leaves its split out.
    """

    images: str
    test_fraction: float = limited(0.5, least=0, most=1)
    validation_fraction: float = limited(0.05, least=0, most=1)
    split_seed: int = 0
    skip_unreadable: bool = False
    root: str = ""
    whole_images: bool = False

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
        check_fields(self)
        if self.test_fraction + self.validation_fraction >= 1:
            raise RecipeError(
                "`test_fraction` + `validation_fraction` must be below 1: the rest is "
                f"for training. Received: {self.test_fraction} + "
                f"{self.validation_fraction}."
            )


@dataclass(frozen=True)
class Embedder:
    """`[embedder]`: the arguments of `tfdml.models.build_embedder`.

    With `unit_length` = false embeddings have any length, and are compared by squared
    Euclidean distance wherever they are measured and searched. It goes with a loss that
    does not scale them: `normalize` = false, NPairLoss or LogRatioLoss. `diversity`,
    `adversary` and `weight_penalty` are those of an ensemble, whose `learners` the loss
    names. `lora_rank` and `lora_layers` go with `tuning` = "lora" (docs/backbones.md).
    """

    image_size: int = limited(64, least=8)
    embedding_dimension: int = limited(128, least=1)
    backbone: str = "residual"
    weights: str = ""
    pooling: str = "average"
    widths: tuple[int, ...] = (32, 64, 128, 256)
    blocks: int = 1
    stem_stride: int = 2
    dropout: float = limited(0.0, least=0, most=1)
    unit_length: bool = True
    diversity: float = limited(0.0, least=0)
    adversary: int = limited(0, least=0)
    weight_penalty: float = limited(100.0, least=0)
    tuning: str = one_of("whole", ("whole", "lora", "frozen"))
    lora_rank: int = limited(8, least=1)
    lora_layers: str = one_of("attention", ("attention", "all"))

    def __post_init__(self) -> None:
        """Check what can be checked without building the network."""
        check_fields(self)
        if self.tuning != "lora":
            for name in ("lora_rank", "lora_layers"):
                if getattr(self, name) != getattr(Embedder, name):
                    raise RecipeError(
                        f'`{name}` goes with `tuning` = "lora". '
                        f"Received: {shown(getattr(self, name))}."
                    )

    @property
    def metric(self) -> Literal["cosine", "squared_euclidean"]:
        """How embeddings are compared."""
        return "cosine" if self.unit_length else "squared_euclidean"


LABEL_DISTANCES = ("squared_euclidean", "segmentation", "caption")
"""What `label_distance` may be; `training.run.build_batches` has the functions."""


@dataclass(frozen=True)
class Loss:
    """`[loss]`: a loss of `tfdml.losses` by its class name, and its arguments.

    For LogRatioLoss and ContinuousTripletLoss, `label_distance` is "squared_euclidean"
    (poses), "segmentation" (room layouts) or "caption".

    `dimensions` applies the loss to the first components of an embedding, too, such as
    [32, 64, 128], each weighted by 1 or by its number in `dimension_weights`, so that
    a search can take fewer (`tfdml.losses.MatryoshkaLoss`). The last is the
    `embedding_dimension`.
    """

    name: str = "TopKPrecisionLoss"
    arguments: dict[str, Any] = field(default_factory=dict)
    on_proxies: bool = False
    is_weighted: bool = False
    on_boundaries: bool = False
    on_scale: bool = False
    label_distance: str = one_of("squared_euclidean", LABEL_DISTANCES)

    def __post_init__(self) -> None:
        """Check the values that are not those of the loss itself."""
        check_fields(self)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The lengths of the prefixes that are trained; none: the whole alone."""
        return tuple(self.arguments.get("dimensions") or ())


@dataclass(frozen=True)
class Proxies:
    """`[proxies]`: the layer `tfdml.layers.Proxies`, with a proxy loss alone.

    Proxies learn with `learning_rate_multiplier` times the learning rate, under every
    optimizer; weight decay follows. `center_penalty` is the tau of SoftTriple.
    """

    centers_per_class: int = limited(1, least=1)
    learning_rate_multiplier: float = limited(1.0, above=0)
    center_penalty: float = limited(0.0, least=0)

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)


@dataclass(frozen=True)
class Boundaries:
    """`[boundaries]`: the layer `tfdml.layers.ClassBoundaries`, with a loss on it.

    One boundary of each training class is learned, from `initial` on, with
    `learning_rate_multiplier` times the learning rate, under every optimizer; weight
    decay follows. The losses are LearnedMarginLoss and
    DistanceWeightedLearnedMarginLoss.
    """

    initial: float = limited(1.2, least=0, most=2)
    learning_rate_multiplier: float = limited(1.0, above=0)

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)


@dataclass(frozen=True)
class Moments:
    """`[moments]`: `tfdml.layers.HighOrderMoments`, with the loss on each moment too.

    `order` 1, the mean of the feature map, is the embedding alone.
    """

    order: int = limited(1, least=1)
    width: int = limited(8192, least=1)

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)


CROPS = ("none", "position", "resized")


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
    crop: str = one_of("none", CROPS)
    min_scale: float = 0.16
    cache_megabytes: int = limited(2048, least=0)
    max_pixels: int = limited(100_000_000, least=1)
    scaled_decoding: bool = False
    workers: int = limited(-1, least=-1)

    def __post_init__(self) -> None:
        """Check what `tfdml.images.View` and `RandomView` do not."""
        check_fields(self)


DESIGNS = {
    "groups": ("images_per_class", "classes_per_batch", "small_classes"),
    "pairs": ("batch_size", "positive_probability"),
    "capped": ("batch_size", "images_per_class"),
    "n_pairs": ("classes_per_batch", "hard_classes", "candidate_classes"),
    "neighbors": ("batch_size", "neighbors", "anchors"),
    "hierarchy": ("anchors", "classes_per_anchor", "images_per_class", "levels"),
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
    - "n_pairs": 2 images of each of `classes_per_batch` classes. With `hard_classes`
      these are hard to tell apart by the network as it is at the beginning of the
      epoch, chosen among `candidate_classes` random ones (0: all).
    - "pairs": `batch_size` / 2 pairs, positive with `positive_probability`.
    - "neighbors", for continuous labels: `batch_size` images, of which `anchors` and
      the nearest `neighbors` of each.
    - "hierarchy": `anchors` classes, each with the nearest to make
      `classes_per_anchor`, by a tree of `levels` levels that is made anew before each
      epoch; `images_per_class` of each.
    - "shuffled": `batch_size` images as they come, for losses on proxies.

    With `importance_weights` a weighted contrastive loss undoes what the design
    ("groups" or "pairs") favors.

    With `chunk` above 0 so many images, which must divide the batch, are embedded at a
    time (`tfdml.models.LargeBatch`): a step takes the memory of a chunk, and the time
    of a second forward pass.
    """

    design: str = one_of("groups", tuple(DESIGNS))
    images_per_class: int = limited(4, least=2)
    classes_per_batch: int = limited(16, least=2)
    small_classes: str = one_of("repeat", ("repeat", "leave_out"))
    batch_size: int = limited(64, least=2)
    positive_probability: float = limited(0.5, least=0, most=1)
    neighbors: int = limited(5, least=1)
    anchors: int = limited(1, least=1)
    classes_per_anchor: int = limited(4, least=2)
    levels: int = limited(16, least=1)
    hard_classes: bool = False
    candidate_classes: int = limited(0, least=0)
    importance_weights: bool = False
    chunk: int = limited(0, least=0)

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)
        taken = ("design", "importance_weights", "chunk", *DESIGNS[self.design])
        for table_field in dataclasses.fields(self):
            name = table_field.name
            if name not in taken and getattr(self, name) != table_field.default:
                raise RecipeError(
                    f"`{name}` does not go with the design {shown(self.design)}, which "
                    f"takes {', '.join(f'`{key}`' for key in DESIGNS[self.design])}. "
                    f"Received: {shown(getattr(self, name))}."
                )
        if self.candidate_classes and not self.hard_classes:
            raise RecipeError(
                "`candidate_classes` goes with `hard_classes` = true. "
                f"Received: {self.candidate_classes}."
            )
        if self.design == "pairs" and self.batch_size % 2:
            raise RecipeError(
                f"`batch_size` must be even for pairs. Received: {self.batch_size}."
            )
        check_chunk(self.chunk, self.images)

    @property
    def images(self) -> int:
        """Number of images in a batch, where there are as many classes as asked for."""
        match self.design:
            case "groups":
                return self.images_per_class * self.classes_per_batch
            case "n_pairs":
                return 2 * self.classes_per_batch
            case "hierarchy":
                return self.anchors * self.classes_per_anchor * self.images_per_class
        return self.batch_size


def check_chunk(chunk: int, images: int) -> None:
    """Raise if a batch cannot be embedded in chunks.

    Args:
        chunk: Images in a chunk; 0 for no chunks.
        images: Images in a batch.

    Raises:
        RecipeError: `chunk` is larger than the batch or does not divide it.
    """
    if chunk and images % chunk:
        raise RecipeError(
            f"`chunk` must be 0, or at most the batch of {images} images and divide "
            f"it. Received: {chunk}."
        )


RERANKINGS = ("query-expansion", "gallery-augmentation", "k-reciprocal")
"""The names that `rerank` takes; `training.evaluation.reranked` has what they are."""


@dataclass(frozen=True)
class Evaluation:
    """`[evaluation]`: what is measured of the test images.

    `k` lists the k of Precision@k and Recall@k, by default 1 and 5; with continuous
    labels those of the label distance and of nDCG, by default 1 and 10. 1 is always
    measured, and a k that the images are too few for is left out. `table` names a table
    of a paper, whose columns are all measured and printed: "topk" (Table 1 of Lu et
    al.), "weighted-contrastive", "multi-similarity", "proxy-anchor" and, with the k of
    SOP and In-Shop, these two with "-sop" or "-in-shop" added; with continuous labels
    "log-ratio".

    `rerank` lists ways to rank results again, with which `evaluate` measures retrieval
    too: "query-expansion", "gallery-augmentation", "k-reciprocal". They look at
    `rerank_neighbors` neighbors; 0: 10, and 20 for "k-reciprocal".

    With `test_every_epochs` above 0 the test images are also measured in the course of
    training, after so many epochs each and after the last, for a curve such as Figure 4
    of Lu et al. No weights are chosen by it.
    """

    k: tuple[int, ...] = ()
    table: str = one_of("", ("", *PAPER_TABLES))
    test_every_epochs: int = limited(0, least=0)
    rerank: tuple[str, ...] = ()
    rerank_neighbors: int = limited(0, least=0)

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)
        if not set(self.rerank) <= set(RERANKINGS):
            names = ", ".join(map(shown, RERANKINGS))
            raise RecipeError(
                f"`rerank` must hold names among {names}. "
                f"Received: {shown(list(self.rerank))}."
            )
        if self.rerank_neighbors and not self.rerank:
            raise RecipeError(
                "`rerank_neighbors` goes with `rerank`. "
                f"Received: {self.rerank_neighbors}."
            )
        if min(self.k, default=1) < 1 or len(set(self.k)) < len(self.k):
            raise RecipeError(
                "`k` must hold whole numbers of at least 1, none of them twice. "
                f"Received: {shown(list(self.k))}."
            )

    def ks(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Return the k to measure.

        Args:
            usual: Those without `k`.
        """
        of_table = PAPER_TABLES[self.table].ks if self.table else ()
        return tuple(sorted({1, *(self.k or usual), *of_table}))
