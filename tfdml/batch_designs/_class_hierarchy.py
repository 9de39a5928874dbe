"""Merge classes into a tree by their mean distances."""

import numpy as np
from numpy.typing import ArrayLike

from tfdml._core.arguments import whole
from tfdml._core.arrays import as_array
from tfdml.batch_designs._design import Labels, encode_labels
from tfdml.messages import shown

_FARTHEST = 4.0  # the squared distance of two opposite unit rows


class ClassHierarchy:
    """A tree of classes, for `HierarchyBatches` and `HierarchicalTripletLoss`.

    With r the embeddings of the images, scaled to unit length, and n_c the images of
    class c,

        d(p, q) = mean over images i of p and j of q of |r_i - r_j|^2
        s_c = 1 / (n_c^2 - n_c) sum over images i, j of c of |r_i - r_j|^2
        d_0 = mean of s_c,   d_l = d_0 + l (4 - d_0) / L

    Classes that are nearer than d_l are of one node of level l, directly or by way of
    other classes. All are of one node of level L. d_H(p, q) is the threshold of the
    first level on which two classes are of one node.

    A class of one image has no distance within: its s is d_0. If no class has two
    images, d_0 is 0. Computing the tree of C classes of D components takes O(C^2 D)
    time and O(C (D + L)) memory.

    Args:
        embeddings: Finite numbers `[N, D]`, of all training images or some of each
            class.
        labels: Class of each row, integers or strings, `[N]`.
        levels: L, at least 1.

    Attributes:
        names: Labels that occur, ascending, `[C]`.
        levels: L.
        spreads: s of each class, float64 `[C]`.
        thresholds: d_0 to d_L, float64 `[L + 1]`.
        nodes: The node of each class on each level, int64 `[C, L + 1]`, by the number
            of its first class.

    Raises:
        ValueError: The shapes do not fit, there is no row, or an argument is out of
            range.

    Example:
        >>> angles = np.deg2rad([0, 10, 30, 40, 180, 190])
        >>> rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> tree = ClassHierarchy(rows, [5, 5, 7, 7, 9, 9], levels=4)
        >>> tree.nodes.tolist()  # 5 and 7 are of one node from level 1 on
        [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [2, 2, 2, 2, 0]]

    Reference:
        Ge, Huang, Dong and Scott, Deep Metric Learning with Hierarchical Triplet Loss,
        ECCV 2018.
    """

    def __init__(
        self, embeddings: ArrayLike, labels: Labels, *, levels: int = 16
    ) -> None:
        self.levels: int = whole("levels", levels)
        numbers, self.names = encode_labels(labels)
        rows = as_array("embeddings", embeddings)
        is_rows = rows.ndim == 2 and rows.dtype.kind in "iufV"
        if not is_rows or len(rows) != len(numbers) or not len(rows):
            raise ValueError(
                "`embeddings` must be real numbers of the shape [N, D], with a row for "
                f"each of {len(numbers)} labels, at least one. Received: "
                f"shape={rows.shape}, dtype={rows.dtype}."
            )
        rows = rows.astype("float64")
        if not np.isfinite(rows).all():
            raise ValueError(
                "`embeddings` must be finite numbers. Received: "
                f"{np.count_nonzero(~np.isfinite(rows))} numbers not finite."
            )
        self._means, self._squares, counts = _moments(rows, numbers, len(self.names))
        self.spreads: np.ndarray = _spreads(self._means, self._squares, counts)
        smallest = float(self.spreads[0]) if counts.max() < 2 else self.spreads.mean()
        steps = np.arange(self.levels + 1) / self.levels
        self.thresholds: np.ndarray = smallest + steps * (_FARTHEST - smallest)
        self.nodes: np.ndarray = self._merged()

    def distances_from(self, number: int) -> np.ndarray:
        """Return d of one class to each, float64 `[C]`, by its place in `names`."""
        # Not a product of BLAS, whose rounding depends on the number of threads.
        products = np.einsum("cd,d->c", self._means, self._means[number])
        distances = self._squares + self._squares[number] - 2 * products
        return np.maximum(distances, 0)

    def targets(self, labels: Labels) -> np.ndarray:
        """Return what `HierarchicalTripletLoss` takes in place of labels.

        Args:
            labels: Class of each image of a batch, `[B]`.

        Returns:
            float32 `[B, L + 4]`: the number of the class, its s, d_0, and its nodes.

        Raises:
            ValueError: A label is not in the hierarchy.
        """
        numbers, names = encode_labels(labels)
        places = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        if len(unknown := names[self.names[places] != names]):
            raise ValueError(
                "`labels` must be of classes that the hierarchy was made of. "
                f"Received: {shown(unknown[:3].tolist())}."
            )
        classes = places[numbers]
        smallest = np.full(len(classes), self.thresholds[0])
        columns = [classes, self.spreads[classes], smallest, self.nodes[classes]]
        return np.column_stack(columns).astype("float32")

    def _merged(self) -> np.ndarray:
        """Return the nodes of each level, `[C, L + 1]`."""
        parent = np.arange(len(self.names))

        def root(number: int) -> int:
            while parent[number] != number:
                parent[number] = parent[parent[number]]
                number = parent[number]
            return number

        edges = iter(sorted(self._shortest_edges()))
        edge = next(edges, None)
        columns = []
        for threshold in self.thresholds[:-1]:
            while edge is not None and edge[0] < threshold:
                first, second = sorted((root(edge[1]), root(edge[2])))
                parent[second] = first
                edge = next(edges, None)
            columns.append([root(number) for number in range(len(parent))])
        return np.array([*columns, [0] * len(parent)], dtype="int64").T

    def _shortest_edges(self) -> list[tuple[float, int, int]]:
        """Return the shortest edges that join all classes, by Prim's algorithm.

        Two classes are joined by edges below a threshold if and only if some of these
        join them.
        """
        joined = np.zeros(len(self.names), dtype=bool)
        joined[0] = True
        nearest, origin = self.distances_from(0), np.zeros(len(joined), dtype="int64")
        edges = []
        for _ in range(len(joined) - 1):
            number = int(np.where(joined, np.inf, nearest).argmin())
            edges.append((float(nearest[number]), int(origin[number]), number))
            joined[number] = True
            distances = self.distances_from(number)
            is_nearer = distances < nearest
            nearest = np.where(is_nearer, distances, nearest)
            origin[is_nearer] = number
        return edges


def _moments(
    rows: np.ndarray, numbers: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean unit row `[C, D]`, mean square and images of each class `[C]`."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    counts = np.bincount(numbers, minlength=classes)
    sums = np.zeros((classes, rows.shape[1]))
    np.add.at(sums, numbers, rows)
    squares = np.bincount(numbers, np.square(rows).sum(axis=1), classes)
    return sums / counts[:, np.newaxis], squares / counts, counts


def _spreads(means: np.ndarray, squares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return s of each class `[C]`."""
    variances = np.maximum(squares - np.square(means).sum(axis=1), 0)
    has_pairs = counts > 1
    spreads = 2 * variances * counts / np.where(has_pairs, counts - 1, 1)
    typical = spreads[has_pairs].mean() if has_pairs.any() else 0.0
    return np.where(has_pairs, spreads, typical)
