"""Check the dimensions of embeddings whose prefixes are embeddings themselves."""

from collections.abc import Sequence
from typing import Any

from tfdml._core.arguments import whole
from tfdml.messages import shown


def rising_dimensions(dimensions: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the prefixes of an embedding, or refuse them.

    Args:
        dimensions: Whole numbers of at least 1, each above the one before.

    Raises:
        ValueError: They are not such numbers.
    """
    is_list = isinstance(dimensions, Sequence) and not isinstance(dimensions, str)
    if not is_list or not dimensions:
        raise ValueError(
            "`dimensions` must be the lengths of the prefixes of an embedding, such as "
            f"(32, 64, 128). Received: dimensions={shown(dimensions)}."
        )
    lengths = tuple(whole("dimensions", length) for length in dimensions)
    if sorted(set(lengths)) != list(lengths):
        raise ValueError(
            "`dimensions` must rise, the whole embedding last, such as (32, 64, 128). "
            f"Received: dimensions={shown(dimensions)}."
        )
    return lengths


def refuse_another_end(dimensions: tuple[int, ...], dimension: Any) -> None:
    """Refuse prefixes that do not end with the whole embedding.

    Args:
        dimensions: The lengths of the prefixes.
        dimension: The length of the embedding, None if unknown.

    Raises:
        ValueError: The longest prefix is shorter or longer than the embedding.
    """
    if dimension is not None and dimensions[-1] != dimension:
        raise ValueError(
            "The last of `dimensions` must be the dimension of the embeddings, "
            f"{dimension}: no component may stay untrained. "
            f"Received: dimensions={shown(dimensions)}."
        )


def of_prefixes(dimensions: tuple[int, ...]) -> str:
    """Return the mark of similarities with proxies in each prefix. See `marks`."""
    return (
        "similarities with proxies in each prefix, as "
        f"`tfdml.layers.Proxies(dimensions={dimensions})` makes them"
    )
