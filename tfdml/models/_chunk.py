"""Run a model on one chunk of a batch as a function without side effects."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.batches import refuse_mask
from tfdml._core.marks import mark_of
from tfdml._core.tensors import Tensor
from tfdml.messages import shown

MUST_DIVIDE = (
    "`chunk` must be at most the batch and divide it; leave out a short last batch, "
    "as by `drop_remainder=True`."
)


class Chunk:
    """A training pass of one chunk: a function of weights, state and inputs.

    What is read and written are the arguments and the results alone, so that the pass
    can be repeated with the same state, such as that of random numbers.

    Attributes:
        weights: The variables that are trained.
        state: All other variables of the model, such as the statistics of batch
            normalization and the seeds of dropout.
        changed: After a call: the places in `state` of what a pass changes.
        has_losses: After a call: whether layers add losses.
        marks: After a call: what each output is marked with.
        structure: After a call: how the outputs are nested.

    Args:
        model: The model, which must be built.
        nesting: Inputs of the model, of which only the nesting counts.
    """

    def __init__(self, model: keras.Model, nesting: Any) -> None:
        self.model = model
        self.weights: list[Any] = list(model.trainable_variables)
        seen = {id(variable) for variable in self.weights}
        self.state: list[Any] = []
        for variable in [*model.variables, *model.metrics_variables]:
            if id(variable) not in seen:
                seen.add(id(variable))
                self.state.append(variable)
        self._nesting = keras.tree.map_structure(lambda _: 0, nesting)
        self.changed: list[int] = []
        self.has_losses = False
        self.marks: list[str | None] = []
        self.structure: Any = 0

    def __call__(
        self,
        weights: Sequence[Tensor],
        state: Sequence[Tensor],
        inputs: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Run the pass.

        Args:
            weights: Value of each of `self.weights`.
            state: Value of each of `self.state`.
            inputs: The inputs of the chunk, in a flat list.

        Returns:
            The outputs in a flat list, the new values of `self.changed`, and the sum of
            the losses that layers add, without those of regularizers.

        Raises:
            ValueError: The pass changes a variable that cannot be put back.
        """
        variables, values = [*self.weights, *self.state], [*weights, *state]
        with _Pass(zip(variables, values, strict=True)) as done:
            packed = keras.tree.pack_sequence_as(self._nesting, list(inputs))
            outputs = self.model(packed, training=True)
            losses = list(done.losses)
            if losses:
                # Keras tells losses by `id`, which a later tensor may get.
                self.model._clear_losses()
        self._refuse_others(done.updated)
        flat = keras.tree.flatten(outputs)
        for output in flat:
            refuse_mask(output)
        updated = {id(variable) for variable in done.updated}
        self.changed = [i for i, v in enumerate(self.state) if id(v) in updated]
        self.has_losses = bool(losses)
        self.marks = [mark_of(output) for output in flat]
        self.structure = keras.tree.map_structure(lambda _: 0, outputs)
        # Half precision is for layers.
        dtype = keras.backend.result_type("float32", *(x.dtype for x in losses))
        total = ops.zeros((), dtype=dtype)
        for loss in losses:
            total = total + ops.cast(ops.sum(loss), total.dtype)
        new = [done.get_current_value(self.state[i]) for i in self.changed]
        return flat, new, total

    def with_changed(
        self, state: Sequence[Tensor], new: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the state with other values of what a pass changes."""
        merged = list(state)
        for place, value in zip(self.changed, new, strict=True):
            merged[place] = value
        return merged

    def _refuse_others(self, updated: Iterable[Any]) -> None:
        trained = {id(variable) for variable in self.weights}
        known = {id(variable) for variable in self.state}
        for variable in updated:
            if id(variable) in trained:
                raise ValueError(
                    "The layers of `embedder` must leave their trainable weights to "
                    "the optimizer: a second pass would change them again. Received: "
                    f"a layer that changes {shown(variable.path)} when it is called."
                )
            if id(variable) not in known:
                raise ValueError(
                    "The layers of `embedder` must change only variables of their "
                    "own, which a second pass can put back. Draw random numbers by a "
                    "keras.random.SeedGenerator that is an attribute of its layer. "
                    f"Received: a layer that changes {shown(variable.path)}."
                )


class _Pass(keras.StatelessScope):
    """A scope in which variables have given values, and that notes what is changed."""

    def __init__(self, values: Iterable[tuple[Any, Tensor]]) -> None:
        super().__init__(values, collect_losses=True, initialize_variables=False)
        self.updated: list[Any] = []

    def add_update(self, update: tuple[Any, Tensor]) -> None:
        super().add_update(update)
        self.updated.append(update[0])
