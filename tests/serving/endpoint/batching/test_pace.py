"""How long a batch waits. Oracle: docs of `BatchingParameters`, numbers by hand."""

import pytest

from serving.endpoint.batching.pace import Pace, WaitLimits, first_pace, next_pace
from serving.endpoint.batching.parameters import BatchingParameters

UNSET = BatchingParameters(max_batch_size=8)
LIMITS = WaitLimits(part_of_run=0.25, seconds=5.0)


def test_defaults_are_a_quarter_of_the_run_and_5_milliseconds():
    assert WaitLimits() == WaitLimits(part_of_run=0.25, seconds=0.005)


@pytest.mark.parametrize(("micros", "seconds"), [(None, 0), (0, 0), (3_000_000, 3)])
def test_first_batch_waits_for_a_timeout_that_is_set(micros, seconds):
    parameters = BatchingParameters(max_batch_size=8, batch_timeout_micros=micros)
    assert first_pace(parameters) == Pace(8, seconds)


def test_timeout_that_is_set_stays_whatever_has_run():
    parameters = BatchingParameters(max_batch_size=8, batch_timeout_micros=2_000_000)
    assert next_pace(parameters, LIMITS, 3, 7.0, 90.0) == Pace(8, 2.0)


@pytest.mark.parametrize(("run", "timeout"), [(12.0, 3.0), (20.0, 5.0), (40.0, 5.0)])
def test_wait_is_a_part_of_the_run_before_up_to_its_limit(run, timeout):
    assert next_pace(UNSET, LIMITS, 3, run, 90.0) == Pace(3, timeout, run, 90.0)


@pytest.mark.parametrize(
    ("queued_at", "closes_at"),
    [
        (100.0, 101.0),  # it came after the run: its own wait
        (88.0, 91.0),  # it came during the run: the wait begins at the end of that
        (80.0, 91.0),  # as the run began
        (78.0, 89.0),  # it was held up by an earlier run: by this one no more
    ],
)
def test_request_that_came_during_a_run_waits_from_its_end_once(queued_at, closes_at):
    pace = Pace(enough=3, timeout=1.0, last_run=10.0, last_end=90.0)
    assert pace.closes_at(queued_at) == closes_at
