"""Draw batches of two images of each of n classes, hard ones on demand."""

from collections.abc import Sequence

import numpy as np

from tfdml._core.arguments import whole
from tfdml._core.arrays import as_array
from tfdml.batch_designs._design import BatchDesign, Classes, Labels, find_classes


class NPairBatches(BatchDesign):
    """N-pair batches with hard negative class mining.

    A batch holds two different images of each of n classes. Without class embeddings
    the classes are random. With them, classes are chosen that are hard to tell apart:

    1. `candidate_classes` classes are drawn at random, all of them by default;
    2. the batch begins with one of them; then, one by one, it gets the candidate c
       that most violates the triplet constraint with the classes i chosen so far: the
       largest max over i of e_i . e_c - e_i . e_i, with e the class embeddings. Ties
       are broken at random.

    With unit vectors, that is the class most similar to one of those chosen. The paper
    says neither what represents the positive of a class (here its own embedding) nor
    how to combine the violations of several classes (here by their maximum).

    A pass is `L // n` batches, where L is the number of classes with two images or
    more. No class is the first one of two batches of a pass, but a class may be chosen
    for several batches, and others for none. Without class embeddings, no class occurs
    twice in a pass. A class of one image has no pair and is not used.

    With class embeddings, a pass depends on the seed, its number and the embeddings.
    To mine with the current network, set `class_embeddings` between passes. Save them
    with the weights of the network whenever they change, and set the saved ones before
    you resume a run.

    Args:
        labels: Class of each image, integers or strings, `[N]`.
        classes_per_batch: n, from 1 to L.
        class_embeddings: One row for each class of `labels`, in ascending order of the
            labels, also for classes of one image, `[C, D]`: mean embeddings (see
            `class_means`) or proxies, scaled as the loss compares them. `None` for
            random classes.
        candidate_classes: How many classes a batch is chosen from, from n to L. With
            fewer, batches are more random and take less time: a batch takes
            n * candidate_classes * D multiplications.
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-1.0, 0.0]]
        >>> labels = [4, 5, 6, 7, 4, 5, 6, 7]
        >>> design = NPairBatches(labels, 2, class_embeddings=embeddings)
        >>> pairs = {tuple(np.take(labels, batch[::2])) for batch in design.batches(0)}
        >>> {int(a): int(b) for a, b in pairs}.get(5, 6)  # 6 is nearest to 5
        6

    Reference:
        Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective,
        NIPS 2016, section 3.2.2.
    """

    def __init__(
        self,
        labels: Labels,
        classes_per_batch: int,
        *,
        class_embeddings: Sequence[Sequence[float]] | np.ndarray | None = None,
        candidate_classes: int | None = None,
        seed: int = 0,
    ) -> None:
        classes = find_classes(labels)
        super().__init__(int(classes.counts.sum()), seed)
        self._classes = classes
        self._used = np.flatnonzero(classes.counts >= 2)
        self.classes_per_batch: int = whole("classes_per_batch", classes_per_batch)
        if self.classes_per_batch > len(self._used):
            raise ValueError(
                "`classes_per_batch` must be at most the number of classes of 2 images "
                f"or more, {len(self._used)}. Received: classes_per_batch="
                f"{classes_per_batch}."
            )
        self.candidate_classes: int = len(self._used)
        if candidate_classes is not None:
            self.candidate_classes = whole(
                "candidate_classes", candidate_classes, self.classes_per_batch
            )
        if self.candidate_classes > len(self._used):
            raise ValueError(
                "`candidate_classes` must be at most the number of classes of 2 images "
                f"or more, {len(self._used)}. Received: candidate_classes="
                f"{candidate_classes}."
            )
        self.class_embeddings = class_embeddings

    @property
    def class_embeddings(self) -> np.ndarray | None:
        """Float64 array `[C, D]` that cannot be written to, or `None`."""
        return self._embeddings

    @class_embeddings.setter
    def class_embeddings(
        self, embeddings: Sequence[Sequence[float]] | np.ndarray | None
    ) -> None:
        if embeddings is None:
            self._embeddings: np.ndarray | None = None
            return
        array = as_array("class_embeddings", embeddings)
        if array.dtype.kind in "iufV":
            array = array.astype("float64")  # a copy: theirs may be written to
        count = len(self._classes.values)
        if array.dtype != "float64" or array.ndim != 2 or len(array) != count:
            raise ValueError(
                "`class_embeddings` must be finite numbers of shape [classes, D], with "
                f"a row for each of {count} classes. Received: shape={array.shape}, "
                f"dtype={array.dtype}."
            )
        if not np.isfinite(array).all():
            raise ValueError(
                "`class_embeddings` must be finite numbers. Received: "
                f"{np.count_nonzero(~np.isfinite(array))} numbers not finite."
            )
        array.flags.writeable = False
        self._embeddings = array

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return len(self._used) // self.classes_per_batch

    @property
    def batch_size(self) -> int:
        """Number of images in a batch, 2n."""
        return 2 * self.classes_per_batch

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass; the two images of a class stand together."""
        order = generator.permutation(self._used)
        if self._embeddings is None:
            chosen = order[: len(self) * self.classes_per_batch]
        else:
            firsts = order[: len(self)]
            chosen = np.concatenate([self._mine(c, generator) for c in firsts])
        pairs = [generator.permutation(self._classes.members[c])[:2] for c in chosen]
        return np.concatenate(pairs).reshape(len(self), self.batch_size)

    def _mine(self, first: int, generator: np.random.Generator) -> np.ndarray:
        """Choose the classes of a batch that begins with a class."""
        assert self._embeddings is not None  # noqa: S101
        others = generator.permutation(self._used[self._used != first])
        # In random order, so that the first of equal ones is a random one.
        pool = np.concatenate([[first], others[: self.candidate_classes - 1]])
        embeddings = self._embeddings[pool]
        own = np.square(embeddings).sum(axis=1)
        chosen = [0]
        violation = np.full(len(pool), -np.inf)
        while len(chosen) < self.classes_per_batch:
            last = chosen[-1]
            # Not a product of BLAS, whose rounding depends on the number of threads.
            similarity = np.einsum("cd,d->c", embeddings, embeddings[last])
            violation = np.maximum(violation, similarity - own[last])
            violation[chosen] = -np.inf
            chosen.append(int(violation.argmax()))
        return pool[chosen]


def class_means(embeddings: np.ndarray, labels: Labels) -> np.ndarray:
    """Compute the mean embedding of each class, for hard class mining.

    Args:
        embeddings: Float array `[N, D]`.
        labels: Class of each row, integers or strings, `[N]`.

    Returns:
        Float64 array `[C, D]`, classes in ascending order of their labels.

    Raises:
        ValueError: The shapes do not fit.

    Example:
        >>> class_means(np.array([[1.0], [3.0], [5.0]]), ["a", "a", "b"]).tolist()
        [[2.0], [5.0]]
    """
    classes: Classes = find_classes(labels)
    embeddings = as_array("embeddings", embeddings)
    is_rows = embeddings.ndim == 2 and embeddings.dtype.kind in "iufV"
    if not is_rows or len(embeddings) != classes.counts.sum():
        raise ValueError(
            "`embeddings` must be real numbers of the shape [N, D], with a row for "
            f"each of {classes.counts.sum()} labels. Received: "
            f"shape={embeddings.shape}, dtype={embeddings.dtype}."
        )
    means = [embeddings[i].mean(axis=0, dtype="float64") for i in classes.members]
    return np.stack(means) if means else np.zeros((0, embeddings.shape[1]))
