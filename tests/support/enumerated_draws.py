"""All outcomes of a random function, each with its exact probability."""

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np


class _Tape:
    """Stands for `numpy.random.Generator`; each choice follows a list of numbers."""

    def __init__(self, followed: list[int], thresholds: dict[float, Fraction]) -> None:
        self._followed = followed
        self._thresholds = thresholds
        self.sizes: list[int] = []
        self.probability = Fraction(1)

    def _choose(self, size: int) -> int:
        place = len(self.sizes)
        self.sizes.append(size)
        return self._followed[place] if place < len(self._followed) else 0

    def permutation(self, x: Any) -> np.ndarray:
        items = np.arange(x) if np.ndim(x) == 0 else np.asarray(x)
        orders = list(itertools.permutations(range(len(items))))
        self.probability /= len(orders)
        return items[list(orders[self._choose(len(orders))])]

    def integers(self, high: Any, size: int | None = None) -> np.ndarray:
        bounds = np.atleast_1d(high) if size is None else np.full(size, high)
        self.probability /= int(np.prod(bounds))
        return np.array([self._choose(int(bound)) for bound in bounds])

    def random(self, size: int) -> np.ndarray:
        """Return values that stand for intervals, each with its probability."""
        values = list(self._thresholds.items())
        chosen = [values[self._choose(len(values))] for _ in range(size)]
        for _, probability in chosen:
            self.probability *= probability
        return np.array([value for value, _ in chosen])


def outcomes(
    draw: Callable[[Any], np.ndarray], thresholds: dict[float, Fraction] | None = None
) -> Iterator[tuple[np.ndarray, Fraction]]:
    """Run a function with every sequence of choices that its generator can make.

    Args:
        draw: Maps a `numpy.random.Generator` to something.
        thresholds: For `random`: a value of each interval that makes a difference, and
            the length of the interval.

    Yields:
        What the function returns, and the probability of these choices.
    """
    followed: list[int] = []
    while True:
        tape = _Tape(followed, thresholds or {})
        drawn = draw(tape)
        yield drawn, tape.probability
        followed = followed + [0] * (len(tape.sizes) - len(followed))
        while followed and followed[-1] + 1 == tape.sizes[len(followed) - 1]:
            followed.pop()
        if not followed:
            return
        followed[-1] += 1
