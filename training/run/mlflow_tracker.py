"""Log a run to MLflow."""

import os
import time
from typing import Any

import keras
import mlflow
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from tfdml.messages import shortened

from .callbacks import TrainingRun, tagged, test_values

_EXPERIMENT = "tfdml"
_AT_ONCE = 100  # parameters that MLflow takes together


class MLflowTracker(keras.callbacks.Callback):
    """Log the recipe, each epoch, the test results and the report to MLflow.

    The environment says where, as MLflow knows it: MLFLOW_TRACKING_URI and
    MLFLOW_EXPERIMENT_NAME ("tfdml" without it). A run that goes on goes on in the run
    of MLflow that it began. No run of MLflow is made the active one.

    Args:
        run: What is trained.

    Raises:
        RuntimeError: MLflow cannot be reached.
    """

    def __init__(self, run: TrainingRun) -> None:
        super().__init__()
        self._folder = run.folder
        try:
            self._client = mlflow.MlflowClient()
            self._id = self._resumed(run) or self._begun(run)
        except MlflowException as error:
            raise RuntimeError(f"MLflow: {shortened(error)}") from error

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the values of an epoch."""
        self._log(tagged(logs or {}), epoch + 1)

    def on_run_end(self, results: dict[str, Any] | None) -> None:
        """Log the test results and the report, and end the run of MLflow."""
        if results is None:
            self._client.set_terminated(self._id, "FAILED")
            return
        self._log(test_values(results), 0)
        self._client.log_artifact(self._id, str(self._folder / "report.html"))
        self._client.set_terminated(self._id, "FINISHED")

    def _resumed(self, run: TrainingRun) -> str | None:
        """Return the run of MLflow that this run began, if it is still there."""
        noted = run.noted("mlflow").get("run_id")
        if noted is None:
            return None
        try:
            self._client.update_run(noted, status="RUNNING")
        except MlflowException:  # it was deleted, or is in another store
            return None
        return str(noted)

    def _begun(self, run: TrainingRun) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else None
        experiment = experiment or self._client.create_experiment(name)
        begun = self._client.create_run(experiment, run_name=run.name).info.run_id
        parameters = [
            Param(f"{table}.{key}", str(value))
            for table, values in run.recipe.items()
            for key, value in values.items()
        ]
        for start in range(0, len(parameters), _AT_ONCE):
            some = parameters[start : start + _AT_ONCE]
            self._client.log_batch(begun, params=some)
        run.note("mlflow", {"run_id": begun})
        return str(begun)

    def _log(self, values: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)
