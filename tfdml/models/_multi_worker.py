"""Train under `tf.distribute.MultiWorkerMirroredStrategy`."""

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="tfdml")
class MultiWorkerModel(keras.Model):
    """A model whose `fit` works under `tf.distribute.MultiWorkerMirroredStrategy`.

    The `fit` and `evaluate` of Keras 3.15 fail there (keras-team/keras#20585) in two
    places. To infer the shapes of a model, the first batch is averaged over the
    workers, which TensorFlow supports only in a compiled function; this model uses its
    own share. The numbers that a step reports are averaged along an axis, which scalars
    do not have; this model reports vectors of one number. In all other respects it is a
    plain `keras.Model`.

    All workers must run the same program with the same seed: each reads every batch and
    keeps its own share. They wait for each other wherever metrics are read, so all of
    them must read metrics. Save from one of them.

    Args:
        inputs: Inputs, as of a functional `keras.Model`.
        outputs: Outputs.
        name: Name of the model.

    Example:
        >>> import keras
        >>> inputs = keras.Input((4,))
        >>> model = MultiWorkerModel(inputs, keras.layers.Dense(3)(inputs))
        >>> model.compile("sgd", loss="mse")
    """

    def train_step(self, *arguments: Any) -> Any:
        """Run a training step and report vectors."""
        return self._reported(super().train_step(*arguments))

    def test_step(self, *arguments: Any) -> Any:
        """Evaluate one batch and report vectors."""
        return self._reported(super().test_step(*arguments))

    def _reported(self, logs: Any) -> Any:
        if not self._is_on_one_of_several_workers():
            return logs
        return {name: keras.ops.reshape(value, [1]) for name, value in logs.items()}

    def _maybe_symbolic_build(
        self, iterator: Any = None, data_batch: Any = None
    ) -> None:
        if not self._is_on_one_of_several_workers():
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
            return
        strategy = self.distribute_strategy
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = next(batches)
                break
        # Any share has the same shapes.
        share = keras.tree.map_structure(
            lambda values: strategy.experimental_local_results(values)[0], data_batch
        )
        with strategy.scope():
            self._symbolic_build(data_batch=share)

    def _is_on_one_of_several_workers(self) -> bool:
        if keras.backend.backend() != "tensorflow":
            return False
        strategy = self.distribute_strategy
        replicas = strategy.num_replicas_in_sync
        return bool(replicas > 1 and replicas > len(strategy.extended.worker_devices))
