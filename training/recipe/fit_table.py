"""Hold the table `[fit]` of a recipe."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Self

from tfdml.messages import shown

from .checks import RecipeError, check_fields, check_range, limited, one_of

OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "rmsprop": "RMSprop", "sgd": "SGD"}
"""The class in `keras.optimizers` of each `optimizer`."""

SCHEDULES: dict[str, tuple[str, ...]] = {
    "cosine": (),
    "constant": (),
    "steps": ("decay_at", "decay_factor"),
    "exponential": ("decay_every", "decay_factor"),
    "inverse_time": ("decay_every",),
}
"""The keys that each `schedule` needs."""

EVENT_FILES = "tensorboard"
"""The callback that is the same as `tensorboard = true`."""

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


@dataclass(frozen=True)
class Fit:
    """`[fit]`: an optimizer, its schedule, and how long it runs.

    `steps` is a multiple of `steps_per_epoch`, or less than it: then there is one
    epoch. With `minutes` above 0 in place of `steps` the run ends when it has trained
    for so long, all its parts together; the time to compile, to validate and to write
    states counts. A faster machine takes more steps, and the last epoch may be shorter.
    `optimizer` is "adamw", "adam", "rmsprop" or "sgd" (with `momentum`).
    `epsilon` of Adam stands where the paper and PyTorch have it, beside the corrected
    root; 0 keeps Keras' 1e-7.

    The learning rate rises linearly over `warmup_steps` to `learning_rate`. `schedule`
    is "cosine" (to 0 at the end of the steps or minutes), "constant", "steps" (times
    `decay_factor` from each step in `decay_at` on), "exponential" (times `decay_factor`
    after every `decay_every` steps) or "inverse_time" (divided by 1 + step /
    `decay_every`). The
    last three count steps from the beginning of the run, those of the warm-up too.

    `weight_decay` shrinks weights by learning rate times decay, apart from the gradient
    (AdamW), whatever the optimizer. `l2_penalty` adds penalty times weight to the
    gradient after clipping, which is what PyTorch's optimizers but AdamW call
    weight_decay; only one of them is above 0.

    Gradients longer than `clip_norm`, all together, or larger than `clip_value` are cut
    down; 0 cuts nothing. Over `gradient_accumulation` batches gradients are averaged
    before a step.

    The backbone, all that stands before the pooling, learns with `backbone_rate` times
    the learning rate, the embedding layer with `embedding_rate` times. With a
    `layer_decay` below 1 each block of the backbone, from the last to the first, learns
    with that factor times the rate of what comes after it. Weight decay follows. In the
    first `head_only_steps` only the embedding layer and the proxies
    learn, if there are any. `freeze_batch_norm` leaves the batch normalizations of the
    backbone as they are, all the time.

    With `ema_momentum` above 0 validation and the saved weights are averages, each step
    momentum times the average plus the rest of the weights; training goes on with the
    weights themselves. `keep` says which weights the run ends with: of the epoch that
    was "best" on the validation classes, or the "last". After `patience` epochs that
    are no better the run ends; 0 never ends it. `tensorboard` writes event files and
    the embedding projector. `callbacks` name trackers, such as "mlflow" and "wandb",
    and callbacks of your own (docs/training.md).
    """

    steps: int = limited(1000, least=1)
    minutes: float = limited(0.0, least=0)
    steps_per_epoch: int = limited(100, least=1)
    learning_rate: float = limited(1e-3, above=0)
    warmup_steps: int = limited(0, least=0)
    weight_decay: float = limited(1e-4, least=0)
    seed: int = limited(0, least=0, most=2**31 - 1)
    optimizer: str = one_of("adamw", tuple(OPTIMIZERS))
    epsilon: float = limited(0.0, least=0)
    momentum: float = limited(0.9, least=0, below=1)
    l2_penalty: float = limited(0.0, least=0)
    schedule: str = one_of("cosine", tuple(SCHEDULES))
    decay_at: tuple[int, ...] = ()
    decay_every: int = limited(0, least=0)
    decay_factor: float = limited(0.0, least=0, most=1)
    clip_norm: float = limited(0.0, least=0)
    clip_value: float = limited(0.0, least=0)
    gradient_accumulation: int = limited(1, least=1)
    backbone_rate: float = limited(1.0, least=0)
    embedding_rate: float = limited(1.0, least=0)
    layer_decay: float = limited(1.0, above=0, most=1)
    head_only_steps: int = limited(0, least=0)
    freeze_batch_norm: bool = False
    ema_momentum: float = limited(0.0, least=0, below=1)
    precision: str = one_of("float32", PRECISIONS)
    jit_compile: bool = True
    keep: str = one_of("best", ("best", "last"))
    patience: int = limited(0, least=0)
    tensorboard: bool = False
    callbacks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)
        if self.minutes and self.steps != Fit.steps:
            raise RecipeError(
                "`steps` must be left out with `minutes`. "
                f"Received: {self.steps} steps and {self.minutes:g} minutes."
            )
        if not self.minutes and self.steps % self.epoch_steps:
            raise RecipeError(
                "`steps` must be a multiple of `steps_per_epoch`, "
                f"{self.steps_per_epoch}. Received: {self.steps}."
            )
        if not self.minutes:
            check_range(self, "warmup_steps", 0, self.steps - 1)
            check_range(self, "gradient_accumulation", 1, self.steps)
            check_range(self, "head_only_steps", 0, self.steps - 1)
        self._check_schedule()
        self._check_together()

    def with_steps(self, steps: int) -> Self:
        """Return the same plan over another number of steps, its places in proportion.

        Of a plan in minutes the places stay, as far as there are so many steps.

        Args:
            steps: At least 1.

        Raises:
            RecipeError: `steps` is below 1.
        """
        if steps < 1:
            raise RecipeError(f"`steps` must be at least 1. Received: {steps}.")
        wanted = self.epochs or max(1, steps // self.epoch_steps)
        epochs = next(n for n in range(min(wanted, steps), 0, -1) if not steps % n)

        def scaled(count: int) -> int:
            return count if self.minutes else round(count * steps / self.steps)

        def place(step: int) -> int:
            return min(scaled(step), steps - 1)

        at = {place(step) for step in self.decay_at} - {0}
        is_over = self.schedule == "steps" and not at  # too few steps to fall in
        return dataclasses.replace(
            self,
            steps=steps,
            minutes=0.0,
            steps_per_epoch=steps // epochs,
            warmup_steps=place(self.warmup_steps),
            head_only_steps=place(self.head_only_steps),
            schedule="constant" if is_over else self.schedule,
            decay_at=tuple(sorted(at)),
            decay_factor=0.0 if is_over else self.decay_factor,
            decay_every=self.decay_every and max(1, scaled(self.decay_every)),
            gradient_accumulation=min(self.gradient_accumulation, steps),
        )

    def with_minutes(self, minutes: float) -> Self:
        """Return the same plan for another time, or for a time in place of steps.

        Args:
            minutes: Above 0.

        Raises:
            RecipeError: `minutes` is not above 0 or not finite.
        """
        if not 0 < minutes < math.inf:
            raise RecipeError(
                f"`minutes` must be above 0 and finite. Received: {minutes}."
            )
        return dataclasses.replace(self, steps=Fit.steps, minutes=float(minutes))

    def _check_schedule(self) -> None:
        for name in ("decay_at", "decay_every", "decay_factor"):
            given, wanted = bool(getattr(self, name)), name in SCHEDULES[self.schedule]
            if given != wanted:
                rule = "be given" if wanted else "be left out"
                raise RecipeError(
                    f"`{name}` must {rule} with schedule = {shown(self.schedule)}. "
                    f"Received: {getattr(self, name)}."
                )
        at = self.decay_at
        end = math.inf if self.minutes else self.steps
        if any(a >= b for a, b in zip((0, *at), (*at, end), strict=True)):
            most = "" if self.minutes else f" to below `steps`, {self.steps}"
            raise RecipeError(
                f"`decay_at` must increase, from at least 1{most}. "
                f"Received: {shown(list(at))}."
            )

    def _check_together(self) -> None:
        if self.weight_decay and self.l2_penalty:
            raise RecipeError(
                "`weight_decay` must be 0 with an `l2_penalty`. "
                f"Received: {self.weight_decay} and {self.l2_penalty}."
            )
        if self.epsilon and self.optimizer == "sgd":
            raise RecipeError(
                "`epsilon` must be left out with optimizer = 'sgd'. "
                f"Received: {self.epsilon}."
            )
        if self.momentum != 0.9 and self.optimizer != "sgd":
            raise RecipeError(
                "`momentum` must be left out except with optimizer = 'sgd'. "
                f"Received: {self.momentum} with {shown(self.optimizer)}."
            )
        if self.patience and self.keep == "last":
            raise RecipeError(
                "`patience` must be 0 with keep = 'last', which has no best epoch. "
                f"Received: {self.patience}."
            )
        if self.head_only_steps % self.gradient_accumulation:
            raise RecipeError(
                "`head_only_steps` must be a multiple of `gradient_accumulation`, "
                f"{self.gradient_accumulation}. Received: {self.head_only_steps}."
            )

    @property
    def writes_event_files(self) -> bool:
        """Whether there are files for TensorBoard."""
        return self.tensorboard or EVENT_FILES in self.callbacks

    @property
    def epoch_steps(self) -> int:
        """Number of steps in each epoch."""
        if self.minutes:
            return self.steps_per_epoch
        return min(self.steps, self.steps_per_epoch)

    @property
    def epochs(self) -> int | None:
        """Number of epochs; None where `minutes` end the run."""
        return None if self.minutes else self.steps // self.epoch_steps
