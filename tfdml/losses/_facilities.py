"""Choose the medoids of a batch by loss-augmented facility location.

Medoids are rows of the batch, and a clustering is given by the medoid of each row. All
candidates for one more medoid are compared at once: which rows would go to them, a
matrix `[B, B]`, gives the mutual information with the classes by products with other
such matrices. No step needs a tensor of more entries.
"""

from typing import NamedTuple

from keras import ops

from tfdml._core.control_flow import while_loop
from tfdml._core.tensors import Tensor, same_labels

State = tuple[Tensor, ...]


class Facilities(NamedTuple):
    """What does not change while medoids are chosen.

    Attributes:
        distances: Distances of all rows, 0 on the diagonal, float `[B, B]`. Constants.
        same_class: 1 for rows of one class, else 0, float `[B, B]`.
        gamma: Weight of the structured margin.
    """

    distances: Tensor
    same_class: Tensor
    gamma: float

    @property
    def rows(self) -> Tensor:
        """Return the positions of the rows, int32 `[B]`."""
        return ops.arange(ops.shape(self.distances)[0], dtype="int32")

    @property
    def classes(self) -> Tensor:
        """Return the number of classes, an int32 scalar."""
        shares = 1 / ops.sum(self.same_class, axis=1)
        return ops.cast(ops.round(ops.sum(shares)), "int32")

    def assigned(self, is_medoid: Tensor) -> Tensor:
        """Return the nearest medoid of each row, int32 `[B]`; a medoid is its own."""
        candidates = ops.where(is_medoid, self.distances, float("inf"))
        nearest = ops.cast(ops.argmin(candidates, axis=1), "int32")
        return ops.where(is_medoid, self.rows, nearest)

    def margin_of(self, medoid: Tensor) -> Tensor:
        """Compute 1 - NMI of a clustering and the classes, a scalar.

        Args:
            medoid: The medoid of each row, int32 `[B]`.
        """
        clusters = ops.cast(same_labels(medoid, medoid), self.distances.dtype)
        cells = ops.sum(clusters * self.same_class, axis=1)
        information = self._normalized(
            ops.sum(ops.log(ops.sum(clusters, axis=1))), ops.sum(ops.log(cells))
        )
        # Equal partitions, exactly.
        is_equal = ops.all(ops.equal(clusters, self.same_class))
        return ops.where(is_equal, 0, 1 - information)

    def augmented(self, is_medoid: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what each row would be worth as one more medoid.

        Args:
            is_medoid: The medoids there are, perhaps none, boolean `[B]`.

        Returns:
            For each row `[B]`: 1 - NMI of the clustering and the classes, and the sum
            of the distances of all rows to their medoids.
        """
        candidates = ops.where(is_medoid, self.distances, float("inf"))
        nearest = ops.min(candidates, axis=1)
        # Which rows go to a candidate, [candidate, row].
        itself = same_labels(self.rows, self.rows)
        goes = ops.logical_or(self.distances < nearest, itself)
        energy = ops.sum(ops.where(goes, self.distances, nearest), axis=1)

        goes = ops.cast(goes, self.distances.dtype)
        medoid = self.assigned(is_medoid)
        clusters = ops.cast(same_labels(medoid, medoid), goes.dtype)
        sizes = ops.sum(goes, axis=1)
        information = self._normalized(
            _staying(goes, clusters) + _x_log_x(sizes),
            _staying(goes, clusters * self.same_class) + _going(goes, self.same_class),
        )
        return 1 - information, energy

    def _normalized(self, cluster_sum: Tensor, cell_sum: Tensor) -> Tensor:
        """Compute the NMI from sums of n log n over clusters, and over their classes.

        The mutual information is divided by the geometric mean of both entropies. It is
        0 if there is one class or one cluster.
        """
        count = ops.cast(ops.shape(self.same_class)[0], self.same_class.dtype)
        log = ops.log(count)
        class_sum = ops.sum(ops.log(ops.sum(self.same_class, axis=1)))
        of_classes = log - class_sum / count
        of_clusters = log - cluster_sum / count
        shared = of_classes + of_clusters - (log - cell_sum / count)
        # The least entropy above 0 is that of one row apart, far above rounding.
        least = 0.5 * log / count
        has_both = ops.logical_and(of_classes > least, of_clusters > least)
        product = ops.where(has_both, of_classes * of_clusters, 1)
        return ops.where(has_both, ops.clip(shared / ops.sqrt(product), 0, 1), 0)

    def greedy(self) -> Tensor:
        """Choose as many medoids as there are classes, one after another.

        Returns:
            The turn in which each row was chosen, from 0, int32 `[B]`; -1 for others.
        """

        def choose(turn: Tensor, turns: Tensor) -> State:
            is_medoid = turns >= 0
            margins, energy = self.augmented(is_medoid)
            scores = self.gamma * margins - energy
            scores = ops.where(is_medoid, -float("inf"), scores)
            best = ops.cast(ops.argmax(scores), "int32")
            return turn + 1, ops.where(ops.equal(self.rows, best), turn, turns)

        classes = self.classes
        start = ops.zeros((), "int32"), ops.full_like(self.rows, -1)
        turns: Tensor = while_loop(lambda turn, _: turn < classes, choose, start)[1]
        return turns

    def refined(self, turns: Tensor, rounds: int) -> Tensor:
        """Move each medoid in turn to the best row of its cluster (PAM).

        Args:
            turns: What `greedy` returns.
            rounds: How often all medoids are moved at most. It ends when none moves.

        Returns:
            Which rows are medoids, boolean `[B]`.
        """
        classes = self.classes

        def goes_on(
            step: Tensor, turns: Tensor, medoid: Tensor, moved: Tensor
        ) -> Tensor:
            is_within = ops.not_equal(step % classes, 0)
            return ops.logical_and(
                step < rounds * classes, ops.logical_or(is_within, moved)
            )

        def move(step: Tensor, turns: Tensor, medoid: Tensor, moved: Tensor) -> State:
            turn = step % classes
            begins = ops.equal(turn, 0)
            # The clusters are those of the beginning of the round.
            medoid = ops.where(begins, self.assigned(turns >= 0), medoid)
            is_own = ops.equal(turns, turn)
            others = ops.logical_and(turns >= 0, ops.logical_not(is_own))
            own = ops.cast(ops.argmax(ops.cast(is_own, "int32")), "int32")
            members = ops.equal(medoid, own)
            margins, _ = self.augmented(others)
            within = ops.sum(ops.where(members, self.distances, 0), axis=1)
            scores = ops.where(members, self.gamma * margins - within, -float("inf"))
            best = ops.cast(ops.argmax(scores), "int32")
            left = ops.where(is_own, -1, turns)
            moved = ops.logical_or(
                ops.logical_and(moved, ops.logical_not(begins)),
                ops.not_equal(best, own),
            )
            turns = ops.where(ops.equal(self.rows, best), turn, left)
            return step + 1, turns, medoid, moved

        start = (
            ops.zeros((), "int32"),
            turns,
            ops.full_like(turns, -1),
            ops.ones((), "bool"),
        )
        return while_loop(goes_on, move, start)[1] >= 0


def _staying(goes: Tensor, groups: Tensor) -> Tensor:
    """Sum n log n over groups, n the rows that do not go to a candidate, `[B]`.

    Args:
        goes: Which rows go, [candidate, row], float `[B, B]` of 0 and 1.
        groups: Which rows are of one group, float `[B, B]` of 0 and 1.
    """
    sizes = ops.sum(groups, axis=0)
    left = ops.relu(sizes - ops.matmul(goes, groups))
    # Each group is there once for each of its rows.
    return ops.sum(_x_log_x(left) / sizes, axis=1)


def _going(goes: Tensor, groups: Tensor) -> Tensor:
    """Sum n log n over groups, n the rows that go to a candidate, `[B]`."""
    return ops.sum(_x_log_x(ops.matmul(goes, groups)) / ops.sum(groups, axis=0), axis=1)


def _x_log_x(x: Tensor) -> Tensor:
    """Compute x log x of counts; 0 at 0."""
    return x * ops.log(ops.maximum(x, 1))
