"""Log a run to Weights & Biases."""

import os
from typing import Any

import keras
import wandb

from tfdml.messages import shortened

from .callbacks import TrainingRun, tagged, test_values

_PROJECT = "tfdml"


class WandbTracker(keras.callbacks.Callback):
    """Log the recipe, each epoch and the test results to Weights & Biases.

    The environment says where, as wandb knows it: WANDB_PROJECT ("tfdml" without it),
    WANDB_ENTITY, WANDB_MODE=offline and so on. A run that goes on has the id of the run
    of wandb that it began.

    Args:
        run: What is trained.

    Raises:
        RuntimeError: wandb cannot start, as without a login.
    """

    def __init__(self, run: TrainingRun) -> None:
        super().__init__()
        noted = run.noted("wandb").get("id")
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or _PROJECT,
                name=run.name,
                id=noted,
                resume="allow",
                config=run.recipe,
                reinit="create_new",
                # It would take over the output, and with it the progress.
                settings=wandb.Settings(console="off"),
            )
        except wandb.Error as error:
            raise RuntimeError(f"wandb: {shortened(error)}") from error
        run.note("wandb", {"id": self._run.id})
        # A run that goes on may log an epoch again: its own number counts, not wandb's.
        self._run.define_metric("*", step_metric="epoch")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the values of an epoch."""
        self._run.log({"epoch": epoch + 1, **tagged(logs or {})})

    def on_run_end(self, results: dict[str, Any] | None) -> None:
        """Log the test results, and end the run of wandb."""
        if results is not None:
            self._run.summary.update(test_values(results))
        self._run.finish(exit_code=int(results is None))
