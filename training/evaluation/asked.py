"""Decide which k and which table an evaluation has."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfdml.messages import shown

from ..data.data_set import DataSet
from ..measure.paper_row import check_table
from ..recipe.paper_tables import PAPER_TABLES
from ..recipe.published import Published
from .subject import Subject

KS = (1, 2, 4, 5, 8, 10, 100, 1000)
"""The k of Precision@k and Recall@k, as far as the gallery is large enough."""


@dataclass(frozen=True)
class Asked:
    """What is measured beside what always is.

    Args:
        ks: The k of the metrics.
        table: The name of the paper's table, or "".
        published: What a paper printed for the run, if its test images are evaluated.
    """

    ks: tuple[int, ...]
    table: str
    published: Published


def what_to_measure(
    subject: Subject, k: Sequence[int] | None, table: str | None
) -> Asked:
    """Check what was asked for before anything is embedded.

    Args:
        subject: What is evaluated.
        k: The k in place of the usual ones.
        table: The table in place of that of the recipe.

    Raises:
        ValueError: A k is out of range, or there is no such table for the images.
    """
    data = subject.split.data
    if k is not None:
        _check_ks(k, data)
    recipe = None if subject.run is None else subject.run.recipe.evaluation
    if table is None:
        table = "" if recipe is None else recipe.table
    if table:
        check_table(table, data)
    published = Published()
    if subject.run is not None and subject.is_test_of_run:
        published = subject.run.recipe.published
    ks = {1, *(KS if k is None else k), *published.ks}
    if recipe is not None and k is None:
        ks |= set(recipe.k)
    if table:
        ks |= set(PAPER_TABLES[table].ks)
    return Asked(tuple(sorted(ks)), table, published)


def _check_ks(ks: Sequence[int], data: DataSet) -> None:
    most = data.largest_k()
    for value in ks:
        if not 1 <= value <= most:
            raise ValueError(
                f"`k` must be from 1 to {most}, the number of images that every query "
                f"is compared with. Received: {shown(value)}."
            )
