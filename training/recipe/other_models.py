"""Hold the tables of a recipe that name another model: an old one, and a teacher."""

from dataclasses import dataclass

from tfdml.messages import shown

from .checks import RecipeError, check_fields, limited, one_of


@dataclass(frozen=True)
class Compatible:
    """`[compatible]`: an old model whose gallery the new one is to search.

    `run` is a run folder, an embedder (`.keras`) or an exported model, of the same
    dimension and `unit_length`. Its embeddings of the training images join the loss
    with `weight`, as `tfdml.losses.CompatibleLoss` says. It goes with a loss that is
    defined by pairs alone, and with a loss on proxies.
    """

    run: str = ""
    weight: float = limited(1.0, above=0, most=1e6)

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)


DISTILLATIONS = ("RelationalDistillationLoss", "SimilarityDistillationLoss")


@dataclass(frozen=True)
class Teacher:
    """`[teacher]`: a model, mostly a larger one, that the trained one learns from.

    `run` is a run folder, an embedder (`.keras`) or an exported model of any dimension.
    `loss` compares its embeddings of the training images with those that are trained,
    and is added with `weight`. `angle_weight` is an argument of
    RelationalDistillationLoss, `temperature` of SimilarityDistillationLoss.
    """

    run: str = ""
    weight: float = limited(1.0, above=0, most=1e6)
    loss: str = one_of(DISTILLATIONS[0], DISTILLATIONS)
    angle_weight: float = limited(2.0, least=0, most=1e6)
    temperature: float = limited(1.0, least=1e-4, most=1e4)

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)
        other = "temperature" if self.loss == DISTILLATIONS[0] else "angle_weight"
        default = type(self).__dataclass_fields__[other].default
        if getattr(self, other) != default:
            raise RecipeError(
                f"`{other}` must be left out with {self.loss}. "
                f"Received: {shown(getattr(self, other))}."
            )
