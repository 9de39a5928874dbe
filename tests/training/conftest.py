"""Fixtures that the tests of the training application share."""

from tests.support.training_runs import finished_run, shapes

__all__ = ["finished_run", "shapes"]
