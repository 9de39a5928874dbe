"""Set the sizes at which an index in memory changes how it works."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes at which a search or a compaction takes another way, as measured.

    Attributes:
        few_share: Copying rows to compare with them takes longer than searching as
            many. So all are compared with where fewer than one in `few_share` may be
            returned
        few_rows: and at most so many,
        fewest_share: or fewer than one in `fewest_share`.
        spare: How many more rows are searched for, in multiples of those expected to be
            left out.
        on: How many times as many are searched for where the first were too few.
        block_found: Rows and scores held at once: 48 MiB.
        block_numbers: Numbers of embeddings that are copied at once: 64 MiB.
        tail_share: An index is built again after adding one row in `tail_share`:
            comparing with a row costs about as much as searching 100,000;
        tail_least: not before so many,
        tail_most: and at most so many.
        removed_share: An index is built again after removing one row in so many.
        compared: Comparisons with added rows for each row of the index, after which it
            is built again. Building takes as long: an index that is only searched has
            lost no more than that, and a program that searches a little does not wait.
    """

    few_share: int = 2
    few_rows: int = 20_000
    fewest_share: int = 20
    spare: float = 2
    on: int = 16
    block_found: int = 2**22
    block_numbers: int = 2**24
    tail_share: int = 20
    tail_least: int = 2_000
    tail_most: int = 20_000
    removed_share: int = 5
    compared: int = 5_000
