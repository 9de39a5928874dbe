"""Cut and scale the part of an image that the network sees: its view.

A model belongs to one view. Training, the exported graph, the index and the search
client all bring an image into that same form.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from tfdml.images._read import UnreadableImageError
from tfdml.images._resize import resample, resize_image
from tfdml.messages import shown

LARGEST = 8192
"""Longest side of a view in pixels: above it some step runs out of memory."""

_CROPS = ("none", "position", "resized")
_MOST_PADDED = 2**28  # pixels of a square that is padded
_RATIOS = (3 / 4, 4 / 3)
_TRIES = 10
_SIGNATURE = re.compile(r"view_([0-9]+)(_padded)?")


@dataclass(frozen=True)
class View:
    """How an image of any size becomes a square of the network's size.

    With `resize` = 0, the whole image is squashed to the square. With `resize` = R,
    the shorter side becomes R pixels, the longer one floor(R longer / shorter), and
    the square is cut from the middle: of n pixels, floor((n - image_size) / 2) are
    left out before it. The papers resize to 256 and cut 227 or 224. With `pad`, black
    bands on both sides of its shorter side first make the image a square, as in Hong
    et al. Every resize uses an antialiased bilinear filter.

    Example:
        >>> View(224, resize=256).central(np.zeros((375, 500, 3), "uint8")).shape
        (224, 224, 3)

    Args:
        image_size: Side of the square in pixels, 1 to 8192.
        resize: Length of the shorter side before the square is cut, at least
            `image_size` and at most 8192; 0 squashes.
        pad: Whether bands make the image a square first; needs `resize`.

    Raises:
        ValueError: An argument is out of its range.
    """

    image_size: int
    resize: int = 0
    pad: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name in ("image_size", "resize"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(
                    f"`{name}` must be a whole number. Received: {name}={shown(value)}."
                )
            if value > LARGEST:
                raise ValueError(
                    f"`{name}` must be at most {LARGEST}. "
                    f"Received: {name}={shown(value)}."
                )
        if self.image_size < 1:
            raise ValueError(
                "`image_size` must be at least 1. "
                f"Received: image_size={shown(self.image_size)}."
            )
        if self.resize and self.resize < self.image_size:
            raise ValueError(
                "`resize` must be 0 or at least `image_size`, "
                f"{self.image_size}. Received: resize={shown(self.resize)}."
            )
        if self.pad and not self.resize:
            raise ValueError(
                "`pad` needs `resize`, the size that the padded square gets. "
                "Received: pad=True, resize=0."
            )

    @classmethod
    def of_signatures(cls, names: Iterable[str], image_size: int) -> Self:
        """Return the view of an exported model from the names of its signatures.

        Args:
            names: All of them.
            image_size: Size of the model's images.

        Returns:
            The view; the squash where no name tells another.

        Raises:
            ValueError: There can be no such view, or there is more than one.

        Example:
            >>> View.of_signatures(["serving_default", "view_256"], 224)
            View(image_size=224, resize=256, pad=False)
        """
        found = [match for name in names if (match := _SIGNATURE.fullmatch(name))]
        if len(found) > 1:
            raise ValueError(
                "A model must have one view. Received the signatures "
                f"{sorted(match.string for match in found)}."
            )
        if not found:
            return cls(image_size)
        return cls(image_size, int(found[0][1]), found[0][2] is not None)

    @property
    def signature(self) -> str:
        """The name of the signature that states this view in an exported model.

        `view_R`, or `view_R_padded`; a model that squashes has no such signature.
        Signatures are what every client learns of a model, also through TF Serving,
        which passes on no files.
        """
        return f"view_{self.resize}{'_padded' if self.pad else ''}"

    def reduced(self, image: np.ndarray) -> np.ndarray:
        """Make an image as small as it can be without changing what the view shows.

        Doing it twice changes nothing, and the central view of the result is that of
        the image. An image that would grow is returned as it is (unless padded).

        Args:
            image: uint8 `[height, width, 3]`.

        Returns:
            uint8 `[height, width, 3]`, smaller or the image itself.
        """
        if not self.resize:
            return resize_image(image, self.image_size)
        if self.pad:
            return self._padded(image)
        if min(image.shape[:2]) <= self.resize:
            return image
        return resample(image, *self._resized(image))

    def central(self, image: np.ndarray) -> np.ndarray:
        """Return the view at test time.

        Args:
            image: uint8 `[height, width, 3]`, upright RGB.

        Returns:
            uint8 `[image_size, image_size, 3]`.
        """
        small = self.reduced(image)
        if not self.resize:
            return small
        height, width = self._resized(small)
        size = self.image_size
        return self._cut(small, (height - size) // 2, (width - size) // 2)

    def _at_random(
        self, image: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        """Cut the square at a random place."""
        small = self.reduced(image)
        room = np.subtract(self._resized(small), self.image_size)
        top, left = (int(generator.integers(pixels + 1)) for pixels in room)
        return self._cut(small, top, left)

    def _resized(self, image: np.ndarray) -> tuple[int, int]:
        height, width = image.shape[:2]
        if self.pad:
            return self.resize, self.resize
        shorter = min(height, width)
        return self.resize * height // shorter, self.resize * width // shorter

    def _cut(self, small: np.ndarray, top: int, left: int) -> np.ndarray:
        """Cut the square out of what `reduced` returned, at a place of the resized."""
        size = self.image_size
        height, width = self._resized(small)
        if small.shape[:2] == (height, width):
            return small[top : top + size, left : left + size]
        # Only the square is enlarged: a line of pixels would fill the memory.
        down, across = small.shape[0] / height, small.shape[1] / width
        box = (left * across, top * down, size * across, size * down)
        return resample(small, size, size, box)

    def _padded(self, image: np.ndarray) -> np.ndarray:
        height, width = image.shape[:2]
        side = max(height, width)
        if height == width:
            return resize_image(image, self.resize)
        # The longer side first: the padded square may be too large for the memory.
        if width < height:
            return self._padded(image.swapaxes(0, 1)).swapaxes(0, 1)
        if side * self.resize > _MOST_PADDED:
            raise UnreadableImageError(
                f"an image of {width} x {height} pixels is too long to be padded."
            )
        narrow = resample(image, height, self.resize)
        canvas = np.zeros((side, self.resize, 3), "uint8")
        top = (side - height) // 2
        canvas[top : top + height] = narrow
        return resample(canvas, self.resize, self.resize)


@dataclass(frozen=True)
class RandomView:
    """How a training image is cropped at random to the square of a view.

    Example:
        >>> random_view = RandomView(View(224, resize=256), "position")
        >>> generator = np.random.default_rng(0)
        >>> random_view(np.zeros((375, 500, 3), "uint8"), generator).shape
        (224, 224, 3)

    Args:
        view: The view at test time.
        crop: `"none"` is the central view. `"position"` resizes (and pads) as the view
            says and cuts the square at a random place. `"resized"` takes a random part
            of the image, `min_scale` to 1 of its area and 3/4 to 4/3 as wide as high,
            and squashes it to the square; where ten tries find no such part, the
            largest one in the middle that is no longer than 4/3.
        min_scale: Smallest share of the area, above 0 and at most 1.

    Raises:
        ValueError: The view cannot be cut in this way.
    """

    view: View
    crop: str = "none"
    min_scale: float = 0.16

    def __post_init__(self) -> None:
        """Check the arguments."""
        view = self.view
        if not isinstance(self.crop, str) or self.crop not in _CROPS:
            raise ValueError(
                f"`crop` must be one of {', '.join(map(repr, _CROPS))}. "
                f"Received: crop={shown(self.crop)}."
            )
        if self.crop == "position" and view.resize <= view.image_size:
            raise ValueError(
                '`crop` = "position" needs a `resize` above `image_size`: there is no '
                f"other place to cut. Received: resize={view.resize}, "
                f"image_size={view.image_size}."
            )
        if self.crop == "resized" and view.pad:
            raise ValueError(
                '`crop` = "resized" takes a part of the image itself and goes with '
                "no `pad`. Received: pad=True."
            )
        if not 0 < self.min_scale <= 1:
            raise ValueError(
                "`min_scale` must be above 0 and at most 1. "
                f"Received: min_scale={self.min_scale}."
            )

    @property
    def least_side(self) -> int:
        """The shorter side that an image needs so that no view enlarges it."""
        side = max(self.view.image_size, self.view.resize)
        if self.crop == "resized":
            # The longer side of the smallest part may lie along the shorter one.
            part = self.view.image_size / math.sqrt(self.min_scale * _RATIOS[0])
            side = max(side, math.ceil(part))
        return side

    def __call__(self, image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return a random view.

        Args:
            image: uint8 `[height, width, 3]`, upright RGB.
            generator: Where the random numbers come from.

        Returns:
            uint8 `[image_size, image_size, 3]`.
        """
        if self.crop == "none":
            return self.view.central(image)
        if self.crop == "position":
            return self.view._at_random(image, generator)
        height, width = image.shape[:2]
        part = _random_part(height, width, generator, self.min_scale)
        return resample(image, self.view.image_size, self.view.image_size, part)


def _random_part(
    height: int, width: int, generator: np.random.Generator, min_scale: float
) -> tuple[float, float, float, float]:
    """Return a random box: left, top, width, height."""
    low, high = math.log(_RATIOS[0]), math.log(_RATIOS[1])
    for _ in range(_TRIES):
        area = height * width * generator.uniform(min_scale, 1.0)
        ratio = math.exp(generator.uniform(low, high))
        part_width = round(math.sqrt(area * ratio))
        part_height = round(math.sqrt(area / ratio))
        if 0 < part_width <= width and 0 < part_height <= height:
            left = int(generator.integers(width - part_width + 1))
            top = int(generator.integers(height - part_height + 1))
            return left, top, part_width, part_height
    part_width = min(width, max(1, round(height * _RATIOS[1])))
    part_height = min(height, max(1, round(width / _RATIOS[0])))
    return (
        (width - part_width) // 2,
        (height - part_height) // 2,
        part_width,
        part_height,
    )
