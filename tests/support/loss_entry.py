"""A loss with what it needs to see a batch, as the common tests take it.

Batches hold class ids from 0 to 15, and embeddings of `DIMENSION` components. What
stands between the embeddings and the loss, such as proxies, is the `head` of an entry.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

CLASSES = 16
DIMENSION = 6


@dataclasses.dataclass(eq=False)
class Entry:
    """A loss and how the common tests apply to it.

    Attributes:
        loss: The loss.
        make_head: Makes a new head; None: the loss takes the embeddings.
        ids: `"any"`: labels are names. `"rows"`: they number the columns of the head.
            `"counted"`: the loss knows the number of images of each. `"scale"`: they
            are points on a line.
        costs_without: The kinds of pairs, "positives" and "negatives", without which
            the loss still costs something, by its definition.
        uses_length: Whether the length of the embeddings counts.
        ordered: Whether the order of the rows of a class says what they are.
        of_batch: Whether the loss is of the batch as a whole, of which each anchor has
            a share, also one without positives.
        jumps: Whether the loss jumps where two distances are equal.
        golden: Names of its golden cases, as in `tests.support.golden_losses`.
        ranges: Values that an argument must not have beside the arguments of `loss`,
            and the rule that they break.
    """

    loss: keras.losses.Loss
    make_head: Callable[[], Callable[[Any], Any]] | None = None
    ids: str = "any"
    costs_without: tuple[str, ...] = ()
    uses_length: bool = False
    ordered: bool = False
    of_batch: bool = False
    jumps: bool = False
    golden: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[tuple[Any, ...], str]] = dataclasses.field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        # The head of batches that no model made; it is never trained.
        self.head = self.make_head and self.make_head()
        if isinstance(self.head, keras.Layer):
            self.head.trainable = False

    def outputs(self, embeddings: Any) -> Any:
        """Return what the loss takes as `y_pred`."""
        return embeddings if self.head is None else self.head(embeddings)

    def value(self, labels: Any, embeddings: Any, **changes: Any) -> Any:
        """Return the loss of a batch, with some arguments of the loss changed."""
        loss = rebuilt(self.loss, **changes) if changes else self.loss
        return loss(labels, self.outputs(embeddings))


def rebuilt(loss: keras.losses.Loss, **changes: Any) -> keras.losses.Loss:
    """Return the loss with some arguments changed."""
    config = loss.get_config()
    of_inner = {key: changes[key] for key in ("reduction", "dtype") if key in changes}
    if of_inner and "reduction" not in config:  # a wrapper has those of its loss
        changes = {key: x for key, x in changes.items() if key not in of_inner}
        config["loss"] = rebuilt(loss.loss, **of_inner)
    return type(loss).from_config({**config, **changes})


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Return labels and embeddings: four of each of four classes."""
    random = np.random.default_rng(7)
    labels = np.repeat([3, 5, 8, 9], 4)
    centers = random.normal(size=(10, DIMENSION))
    embeddings = centers[labels] + random.normal(size=(16, DIMENSION))
    return labels, embeddings.astype("float32")
