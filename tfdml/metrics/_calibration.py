"""Record a calibrated threshold and the rates that it reached."""

import json
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, get_args

from tfdml.command_parser import command
from tfdml.messages import cut, shortened, shown

Target = Literal["precision", "false_positive_rate"]

_RATES = ("target_value", "precision", "recall", "false_positive_rate", "low", "high")
_COUNTS = ("queries", "answered", "gallery")
_NAMES_EMBEDDER = "embedder_sha256"  # see `tfdml.run_calibration`
_MOST_COSINE = 1 + 1e-3  # float32 rounds the cosine of equal rows to a bit above 1


@dataclass(frozen=True)
class Calibration:
    """A threshold on the cosine similarity, with the rates it reached when chosen.

    A search answers with its nearest item if the similarity is at least `threshold`,
    and otherwise "no match". Numbers of other types, such as NumPy's, become Python's.

    Args:
        threshold: From -1 to 1.
        target: The wanted rate: `"precision"` or `"false_positive_rate"`.
        target_value: Its wanted value.
        precision: Share of correct answers among the answers.
        recall: Share of the queries with a positive that are answered correctly.
        false_positive_rate: Share of the queries that would be answered if their class
            were not in the gallery.
        low: Lower end of the interval of the wanted rate, see `wilson_interval`.
        high: Its upper end.
        queries: Number of queries.
        answered: How many of them are answered.
        gallery: Number of items that were searched.
        metric: `"cosine"`.

    Raises:
        ValueError: A value is NaN, of another type, or out of its range.

    Example:
        >>> known = Calibration(
        ...     0.75, "precision", 0.9, 0.92, 0.8, 0.05, 0.85, 0.96, 200, 150, 200
        ... )
        >>> known.is_match(0.8), known.is_match(0.7)
        (True, False)
        >>> Calibration.from_json(known.to_json()) == known
        True
    """

    threshold: float
    target: Target
    target_value: float
    precision: float
    recall: float
    false_positive_rate: float
    low: float
    high: float
    queries: int
    answered: int
    gallery: int
    metric: str = "cosine"

    def __post_init__(self) -> None:
        """Check the values, which may come from a file, and make them plain."""
        if self.metric != "cosine":
            self._refuse("metric", "'cosine'")
        if self.target not in get_args(Target):
            self._refuse("target", " or ".join(map(repr, get_args(Target))))
        for name in ("threshold", *_RATES):
            value = getattr(self, name)
            least, most = (-1, _MOST_COSINE) if name == "threshold" else (0, 1)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            # A NaN is in no range.
            if not is_number or not least <= value <= most:
                self._refuse(name, f"a number from {least} to 1")
            object.__setattr__(self, name, float(value))  # JSON knows no other
        for name in _COUNTS:
            value = getattr(self, name)
            is_number = isinstance(value, Integral) and not isinstance(value, bool)
            if not is_number or value < 1:
                self._refuse(name, "a whole number of at least 1")
            object.__setattr__(self, name, int(value))

    def _refuse(self, name: str, rule: str) -> NoReturn:
        raise ValueError(
            f"`{name}` of a calibration must be {rule}. "
            f"Received: {shown(getattr(self, name))}."
        )

    def is_match(self, similarity: float) -> bool:
        """Return whether a nearest item of this similarity is an answer."""
        return similarity >= self.threshold

    def to_json(self) -> dict[str, Any]:
        """Return the values by name, as `from_json` takes them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a calibration of the values that `to_json` returned.

        Args:
            values: A dict of all names and no other.

        Returns:
            The calibration.

        Raises:
            ValueError: A name is missing or not known, or a value is out of range.
        """
        if not isinstance(values, dict):
            raise ValueError(
                "A calibration must be an object of names and values. "
                f"Received: {shown(values)}."
            )
        names = {field.name for field in fields(cls)}
        for words, unfit in (
            ("must have the value", names - values.keys()),
            ("must not have the value", values.keys() - names),
        ):
            if unfit:
                raise ValueError(f"A calibration {words} `{cut(min(unfit))}`.")
        return cls(**values)

    @classmethod
    def read(cls, file: str | PathLike[str]) -> Self:
        """Read what `tfdml calibrate` wrote.

        Args:
            file: A JSON file of `to_json`.

        Returns:
            The calibration.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is damaged; the message names it and the fault.
        """
        try:
            values = json.loads(Path(file).read_text("utf-8"))
            if isinstance(values, dict):
                values.pop(_NAMES_EMBEDDER, None)
            return cls.from_json(values)
        except ValueError as error:  # bad JSON and undecodable bytes too
            raise ValueError(
                f"{cut(file)} holds no calibration: {shortened(error)}. Make it again "
                f"with `{command('training', 'calibrate')}`."
            ) from error

    def __str__(self) -> str:
        """Describe the threshold and its rates in a sentence."""
        name = self.target.replace("_", " ")
        reached = getattr(self, self.target)
        others = ", ".join(
            f"{other.replace('_', ' ')} {getattr(self, other):.3f}"
            for other in ("precision", "recall", "false_positive_rate")
            if other != self.target
        )
        return (
            f"A match at a similarity of {self.threshold:.4f} or more: {name} "
            f"{reached:.3f} ({self.low:.3f} to {self.high:.3f} at 95% confidence; "
            f"wanted {self.target_value:g}), {others}. {self.answered} of "
            f"{self.queries} queries answered, in a gallery of {self.gallery}."
        )
