"""Compute label distances of images by the words of their captions."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tfdml.messages import shown

Captions = Sequence[Sequence[Sequence[str]]]


class WordVectors(Protocol):
    """A dictionary of vectors by word, or what acts like one."""

    def __contains__(self, word: Any) -> bool:
        """Return whether a word has a vector."""
        ...

    def __getitem__(self, word: str) -> Any:
        """Return the vector of a word."""
        ...


class _Image(NamedTuple):
    """The captions of an image: rows of their words in a table, and their shares."""

    rows: NDArray[np.intp]
    shares: list[NDArray[np.float64]]
    places: list[slice]


def word_movers_distances(
    captions: Captions, others: Captions | None = None, *, vectors: WordVectors
) -> NDArray[np.float64]:
    """Compute distances of images by the word mover's distances of their captions.

        D(Y, Z) = sum_{c in Y} min_{d in Z} W(c, d) + sum_{d in Z} min_{c in Y} W(c, d)

    with Y and Z the captions of two images, and W the word mover's distance: the least
    cost of moving the words of c to those of d. A word that makes up the share s of its
    caption has the mass s; moving mass m from a word to another costs m times the
    Euclidean distance of their vectors. W is exact (`ot.emd2` of POT, a network
    simplex), and takes some 30 microseconds for captions of ten words: with five
    captions per image a million pairs of images take a quarter of an hour or more.

    Args:
        captions: For each of A images its captions, each a list of words. Which words
            count, such as lower case without stop words, is your choice.
        others: The captions of B other images; None: the same images, of which each
            pair is computed once.
        vectors: The vector of each word, all of one length: a dictionary, or gensim's
            `KeyedVectors`. As in the paper, words without a vector are left out.

    Returns:
        Distances `[A, B]` in float64, at least 0. As labels of a batch they are for
        `label_distance="precomputed"`, in units of the word vectors.

    Raises:
        ValueError: An image has no caption, a caption is a text instead of a list of
            words or has no word with a vector, or a vector is not finite or of another
            length.

    Example:
        >>> vectors = {"cat": [0.0], "dog": [1.0], "car": [9.0]}
        >>> images = [[["cat"], ["cat", "dog"]], [["car"]]]
        >>> word_movers_distances(images, vectors=vectors).tolist()
        [[0.0, 26.0], [26.0, 0.0]]

    Reference:
        Kusner, Sun, Kolkin and Weinberger, From Word Embeddings To Document Distances,
        ICML 2015; the sum over captions as in Kim, Seo, Laptev, Cho and Kwak, Deep
        Metric Learning Beyond Binary Supervision, CVPR 2019.
    """
    table = _Table(vectors)
    left = [table.image(f"`captions`[{i}]", each) for i, each in enumerate(captions)]
    right = left
    if others is not None:
        right = [table.image(f"`others`[{i}]", each) for i, each in enumerate(others)]
    rows = table.rows()
    distances = np.zeros((len(left), len(right)))
    for i, image in enumerate(left):
        for j in range(i + 1 if others is None else 0, len(right)):
            distances[i, j] = _image_distance(rows, image, right[j])
    return distances + distances.T if others is None else distances


class _Table:
    """The vectors of the words that have occurred."""

    def __init__(self, vectors: WordVectors) -> None:
        self._vectors = vectors
        self._found: dict[str, NDArray[np.float64]] = {}
        self._numbers: dict[str, int] = {}

    def image(self, where: str, captions: Sequence[Sequence[str]]) -> _Image:
        """Check the captions of an image, and number their words."""
        if isinstance(captions, str) or not len(captions):
            raise ValueError(
                f"{where} must be a list of captions, at least one. "
                f"Received: {shown(captions)}."
            )
        rows, shares, places, end = [], [], [], 0
        for words in captions:
            if isinstance(words, str):
                raise ValueError(
                    f"{where} must have captions that are lists of words: split them. "
                    f"Received: {shown(words)}."
                )
            numbers = [self._number(word) for word in words if word in self._vectors]
            if not numbers:
                raise ValueError(
                    f"{where} must have captions with a word that has a vector. "
                    f"Received: {shown(list(words))}."
                )
            different, counts = np.unique(numbers, return_counts=True)
            rows.append(different)
            shares.append(counts / counts.sum())
            places.append(slice(end, end + len(different)))
            end += len(different)
        return _Image(np.concatenate(rows), shares, places)

    def rows(self) -> NDArray[np.float64]:
        """Return the vector of each number."""
        return np.stack(list(self._found.values())) if self._found else np.empty((0, 0))

    def _number(self, word: str) -> int:
        if word not in self._numbers:
            vector = np.asarray(self._vectors[word], dtype="float64")
            first = next(iter(self._found.values()), vector)
            if vector.ndim != 1 or not np.isfinite(vector).all():
                raise ValueError(
                    "`vectors` must give finite numbers [dimension] for each word. "
                    f"Received: {shown(self._vectors[word])} for {shown(word)}."
                )
            if len(vector) != len(first):
                raise ValueError(
                    "`vectors` must be of one length. "
                    f"Received: {len(first)}, and {len(vector)} for {shown(word)}."
                )
            self._found[word] = vector
            self._numbers[word] = len(self._numbers)
        return self._numbers[word]


def _image_distance(table: NDArray[np.float64], left: _Image, right: _Image) -> float:
    """Return the distance of two images by all pairs of their captions."""
    import ot
    from scipy.spatial.distance import cdist

    # Not `ot.dist`, for which a word has a distance from itself.
    apart = cdist(table[left.rows], table[right.rows])
    moved = np.array(
        [
            [
                ot.emd2(share, other, np.ascontiguousarray(apart[rows, columns]))
                for other, columns in zip(right.shares, right.places, strict=True)
            ]
            for share, rows in zip(left.shares, left.places, strict=True)
        ]
    )
    return float(moved.min(axis=1).sum() + moved.min(axis=0).sum())
