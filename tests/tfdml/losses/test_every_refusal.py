"""Arguments that losses refuse, tested once over all losses."""

import pytest

from tests.support.all_losses import ENTRIES
from tests.support.refuses import refuses
from tfdml import losses

pytestmark = pytest.mark.backend

# Their arguments are a function or a loss, checked in test_pair_weights.py,
# test_boundary_sampled.py, test_matryoshka.py and
# test_threshold_consistent_margin.py, and what that takes.
FREE = {
    losses.BoundarySampledLoss,
    losses.MatryoshkaLoss,
    losses.PairWeightedLoss,
    losses.ThresholdConsistentMarginLoss,
}


def test_table_holds_every_argument_of_every_loss():
    for entry in ENTRIES.values():
        refused = set()
        for other in ENTRIES.values():
            if isinstance(entry.loss, type(other.loss)):
                refused |= set(other.ranges)
        arguments = set(entry.loss.get_config()) - {"reduction", "name", "dtype"}
        assert refused == arguments or type(entry.loss) in FREE, entry.loss.name


@pytest.mark.parametrize(
    ("entry", "argument"),
    [
        pytest.param(entry, argument, id=f"{name}-{argument}")
        for name, entry in ENTRIES.items()
        for argument in entry.ranges
    ],
)
def test_argument_out_of_its_range_is_refused(entry, argument):
    values, rule = entry.ranges[argument]
    config = entry.loss.get_config()
    for value in values:
        refuses(
            type(entry.loss), argument=argument, value=value, rule=rule, valid=config
        )
