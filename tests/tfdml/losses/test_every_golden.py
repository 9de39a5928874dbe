"""Value and gradients of every loss against golden numbers."""

import pytest

from tests.support.all_losses import ENTRIES
from tests.support.golden_cases import check, losses_of_cases
from tests.support.golden_losses import GOLDENS
from tests.support.golden_variants import every_golden

pytestmark = [pytest.mark.backend, pytest.mark.slow]

# What the authors' code computes instead of their formula: see the tests of each loss.
OFFICIAL = {"topk_official_code_loss", "log_ratio_official_code"}


def test_table_holds_every_golden_case():
    assert {name for entry in ENTRIES.values() for name in entry.golden} == set(GOLDENS)
    assert {name.split()[0] for name in GOLDENS} == losses_of_cases() - OFFICIAL


@every_golden()
def test_value_and_gradients_equal_the_golden_numbers(
    entry, golden, case, dtype, compiled
):
    check(case, GOLDENS[golden](case, dtype), dtype, compiled=compiled)
