"""Draw the numbers of random changes of training images."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tfdml._core.arguments import boolean, in_range, whole

_STREAM = 0x6368616E  # apart from what else is drawn for the same seed and step


@dataclass(frozen=True)
class RandomChanges:
    """How strongly training images are changed at random; 0 leaves a change out.

    Each image gets numbers of its own, uniform within the range that the strength
    gives, and `tfdml.layers.ImageChanges` changes its pixels by them. The numbers
    depend on the seed, the step and the place of the image in the batch alone: not on
    the backend, on the size of the batch or on what was drawn before.

    Args:
        zoom: Height and width are scaled apart, by 1 - `zoom` (larger) to 1 + `zoom`
            (smaller), about the middle. At least 0 and below 1.
        shift: The image moves down and right by up to this share of its height and
            width, or up and left. 0 to 1.
        rotation: It turns by up to so many degrees, either way. 0 to 180.
        flip: Whether every second image, on average, is mirrored left to right.
        brightness: Up to this share of 255 is added or taken away. 0 to 1.
        contrast: The differences from the mean color are multiplied by 1 - `contrast`
            to 1 + `contrast`. 0 to 1.
        saturation: Up to this share of the color is taken away; 1 leads to gray. 0 to
            1.
        hue: The hue turns by up to this share of half a turn, either way. 0 to 1.
        grayscale: Probability that an image becomes gray. 0 to 1.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> changes = RandomChanges(flip=True, zoom=0.2)
        >>> numbers = changes.numbers(seed=0, step=7, count=4)
        >>> numbers.shape == (4, len(RandomChanges.COLUMNS))
        True
        >>> np.array_equal(changes.numbers(seed=0, step=7, count=2), numbers[:2])
        True
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        "zoom_height",
        "zoom_width",
        "shift_height",
        "shift_width",
        "rotation",
        "flip",
        "brightness",
        "contrast",
        "saturation",
        "hue",
        "grayscale",
    )
    """What each of the numbers of an image is, see `numbers`."""

    HIGHEST: ClassVar[dict[str, float]] = {
        "zoom": 1,
        "shift": 1,
        "rotation": 180,
        "brightness": 1,
        "contrast": 1,
        "saturation": 1,
        "hue": 1,
        "grayscale": 1,
    }
    """The largest value of each argument that is a number; `zoom` is below it."""

    zoom: float = 0.0
    shift: float = 0.0
    rotation: float = 0.0
    flip: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    grayscale: float = 0.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if name == "flip":
                checked: float = boolean(name, value)
            else:
                checked = in_range(name, value, 0, self.HIGHEST[name])
            object.__setattr__(self, name, checked)
        if self.zoom == 1:
            raise ValueError(
                "`zoom` must be below 1: 1 leaves nothing to see. Received: zoom=1.0."
            )

    def __bool__(self) -> bool:
        """Return whether there is any change."""
        return any(dataclasses.astuple(self))

    def numbers(self, seed: int, step: int, count: int) -> np.ndarray:
        """Draw the numbers of the images of a batch.

        Args:
            seed: Seed of the random numbers, at least 0.
            step: Number of the batch, at least 0.
            count: Number of images, at least 0.

        Returns:
            float32 `[count, len(COLUMNS)]`. Row i belongs to place i of the batch.

            - `zoom_height`, `zoom_width`: what is seen, as a multiple of the side; 1
              changes nothing, 2 makes the image half as large
            - `shift_height`, `shift_width`: way down and to the right, as a share of
              the side
            - `rotation`: degrees, counterclockwise
            - `flip`: 1 mirrors
            - `brightness`: share of 255 that is added
            - `contrast`, `saturation`: factors; 1 changes nothing
            - `hue`: share of a whole turn that is added
            - `grayscale`: 1 makes gray

        Raises:
            ValueError: An argument is out of its range.
        """
        entropy = [whole("seed", seed, 0), whole("step", step, 0)]
        # Without a key, zeros would follow: the numbers of [seed, step, 0].
        sequence = np.random.SeedSequence(entropy, spawn_key=(_STREAM,))
        shape = (whole("count", count, 0), len(self.COLUMNS))
        drawn = np.random.default_rng(sequence).random(shape)
        lowest, highest = np.transpose(self._ranges())
        numbers = lowest + (highest - lowest) * drawn
        chances = {"flip": self.flip / 2, "grayscale": self.grayscale}
        for name, probability in chances.items():
            column = self.COLUMNS.index(name)
            numbers[:, column] = drawn[:, column] < probability
        return numbers.astype("float32")

    def _ranges(self) -> list[tuple[float, float]]:
        """Return the least and the largest number of each column."""

        def around(middle: float, strength: float) -> tuple[float, float]:
            return middle - strength, middle + strength

        return [
            around(1, self.zoom),
            around(1, self.zoom),
            around(0, self.shift),
            around(0, self.shift),
            around(0, self.rotation),
            (0, 1),
            around(0, self.brightness),
            around(1, self.contrast),
            (1 - self.saturation, 1),
            around(0, self.hue / 2),
            (0, 1),
        ]
