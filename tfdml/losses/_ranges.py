"""Check arguments for the ranges in which float32 keeps the digits of a loss."""

from tfdml._core.arguments import within
from tfdml._core.batches import LARGEST_COMPONENT

LARGEST = LARGEST_COMPONENT
"""The largest margin or threshold: the square of it times a batch is a float32."""

LARGEST_WEIGHT = 1e6
"""The largest weight of squared lengths, or of the costs of negatives."""

LARGEST_OF_UNIT_ROWS = 10.0
"""The largest margin between distances that are at most 2, whose digits it hides."""


LARGEST_STRUCTURED_MARGIN = 1e3
"""The largest weight of an NMI beside distances, whose digits it hides."""


def scale_of_exponents(name: str, value: float) -> float:
    """Return a scale, or a temperature, of scores in exponents.

    A cosine is off by 1e-7 in float32, and an exponent by that times the scale: at the
    largest scale the weight of a pair is off by 0.1 percent.
    """
    return within(name, value, 1e-4, 1e4)


def threshold_of_scores(name: str, value: float) -> float:
    """Return a number that scores are compared with."""
    return within(name, value, -LARGEST, LARGEST)
