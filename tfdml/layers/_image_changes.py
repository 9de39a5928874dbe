"""Change images by given numbers, as a part of the compiled step."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
from keras import ops

from tfdml._core.control_flow import cond
from tfdml._core.devices import has_gpu
from tfdml._core.tensors import Tensor
from tfdml.images import RandomChanges
from tfdml.messages import shown

_WHITE = 255
_GRAY = (0.2989, 0.5870, 0.1140)  # of red, green and blue, as in Keras
_MOST_PIXELS = 2**31 - 1  # of a batch: places are counted in int32


@keras.saving.register_keras_serializable(package="tfdml")
class ImageChanges(keras.layers.Layer):
    """Change the pixels of each image by its own row of numbers.

    `RandomChanges.numbers` draws the numbers; nothing in the layer is random. So it
    does the same on every backend (to 0.02 of 255 levels, in images of up to 512
    pixels), in a training step that XLA compiles, and at inference. It computes in
    float32 under every dtype policy, and builds only the changes whose strength is not
    0: the other numbers are not looked at.

    The changes come in this order: zoom, shift and rotation, flip, brightness,
    contrast, saturation, hue, gray. What comes from outside the image is white. For the
    same number each one gives the values of Keras' layer (`RandomZoom`,
    `RandomTranslation`, `RandomRotation` with `fill_mode="constant"` and
    `fill_value=255`, `RandomFlip`, ...), but

    - zoom, shift and rotation together are one bilinear resampling, not three: the
      result is sharper, and what one moves out of the image another can bring back;
    - brightness and contrast are computed in float32 and never rounded;
    - saturation is a factor of 0 to 1 of the distance of each channel to the largest,
      x' = v - f (v - x), which is that of the saturation in HSV;
    - a row of neutral numbers changes no pixel by more than 0.001.

    Args:
        changes: Which changes there are. Only whether a strength is 0 matters.
        dtype: Type of the computation and of the output. Defaults to float32,
            whatever the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: a list of images `[batch, height, width, 3]`, uint8 or float, RGB of 0
    to 255, and of their numbers, `[batch, len(RandomChanges.COLUMNS)]`. Output shape:
    that of the images, float32 of 0 to 255.

    Raises:
        ValueError: The inputs have other shapes. (Values are not checked.)

    Example:
        >>> changes = RandomChanges(flip=True, rotation=10)
        >>> images = np.zeros((2, 8, 8, 3), "uint8")
        >>> numbers = changes.numbers(seed=0, step=0, count=2)
        >>> tuple(ImageChanges(changes)([images, numbers]).shape)
        (2, 8, 8, 3)
    """

    def __init__(
        self, changes: RandomChanges, *, dtype: Any = "float32", **kwargs: Any
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        if not isinstance(changes, RandomChanges):
            raise ValueError(
                "`changes` must be a tfdml.images.RandomChanges. "
                f"Received: changes={shown(changes)}."
            )
        self.changes = changes
        self.built = True

    def call(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the changed images."""
        self._check([tuple(each.shape) for each in _pair(inputs)])
        images, numbers = inputs
        numbers = ops.cast(numbers, self.compute_dtype)
        of = {
            name: ops.reshape(numbers[:, column], (-1, 1, 1))
            for column, name in enumerate(RandomChanges.COLUMNS)
        }
        changes = self.changes
        if changes.zoom or changes.shift or changes.rotation:
            images = _kept(
                lambda: self._resampled(images, of),
                lambda: ops.cast(images, self.compute_dtype),
                numbers,
            )
        else:
            if changes.flip:
                mirrored = ops.flip(images, axis=2)
                images = ops.where(of["flip"][..., None] > 0.5, mirrored, images)
            images = ops.cast(images, self.compute_dtype)
        if changes.brightness:
            images = _clipped(images + _WHITE * of["brightness"][..., None])
        if changes.contrast:
            # Line by line: one float32 sum of so many pixels loses digits.
            mean = ops.mean(ops.mean(images, 2, keepdims=True), 1, keepdims=True)
            images = _clipped(mean + (images - mean) * of["contrast"][..., None])
        if changes.saturation or changes.hue or changes.grayscale:
            images = self._colored(images, of, numbers)
        return images

    def _resampled(self, images: Tensor, of: dict[str, Tensor]) -> Tensor:
        """Return what is at the places that the pixels come from, by bilinear means."""
        batch, height, width = ops.shape(images)[:3]
        x, y = self._places(of, height, width)
        top, down = _between(y, height)
        left, right = _between(x, width)
        # With a frame of white there is a pixel at all four corners of any place.
        frame = ((0, 0), (1, 1), (1, 1), (0, 0))
        pixels = ops.reshape(ops.pad(images, frame, constant_values=_WHITE), (-1, 3))
        line = width + 2
        first = ops.arange(batch, dtype="int32") * ((height + 2) * line)
        corner = ops.reshape(first, (-1, 1, 1)) + top * line + left

        def taken(offset: int) -> Tensor:
            found = ops.take(pixels, corner + offset, axis=0)
            # JAX 0.11 loses the shape of what is taken for an empty batch.
            found = ops.reshape(found, (batch, height, width, 3))
            return ops.cast(found, self.compute_dtype)

        right, down = right[..., None], down[..., None]
        upper = _mixed(taken(0), taken(1), right)
        lower = _mixed(taken(line), taken(line + 1), right)
        return _mixed(upper, lower, down)

    def _places(self, of: dict[str, Tensor], height: Any, width: Any) -> Any:
        """Return where each pixel comes from: x and y in pixels, `[batch, h, w]`.

        Without rotation an axis on which x or y does not depend has length 1.
        """
        x = ops.reshape(ops.arange(width, dtype=self.compute_dtype), (1, 1, -1))
        y = ops.reshape(ops.arange(height, dtype=self.compute_dtype), (1, -1, 1))
        across = ops.cast(width, self.compute_dtype)
        down = ops.cast(height, self.compute_dtype)
        # From the last change back to the first, about the middle of the image.
        x, y = x - (across - 1) / 2, y - (down - 1) / 2
        if self.changes.flip:
            x = ops.where(of["flip"] > 0.5, -x, x)
        if self.changes.rotation:
            angle = ops.deg2rad(of["rotation"])
            cos, sin = ops.cos(angle), ops.sin(angle)
            x, y = cos * x - sin * y, sin * x + cos * y
        if self.changes.shift:
            x, y = x - of["shift_width"] * across, y - of["shift_height"] * down
        if self.changes.zoom:
            x, y = x * of["zoom_width"], y * of["zoom_height"]
        return x + (across - 1) / 2, y + (down - 1) / 2

    def _colored(
        self, images: Tensor, of: dict[str, Tensor], numbers: Tensor
    ) -> Tensor:
        channels = [images[..., 0], images[..., 1], images[..., 2]]
        if self.changes.saturation:
            largest = _largest(channels)
            channels = [
                _clipped(largest - (largest - each) * of["saturation"])
                for each in channels
            ]
        if self.changes.hue:
            before = channels
            channels = _kept(
                lambda: _with_hue(before, of["hue"]), lambda: before, numbers
            )
        if self.changes.grayscale:
            gray = sum(share * x for share, x in zip(_GRAY, channels, strict=True))
            chosen = of["grayscale"] > 0.5
            channels = [ops.where(chosen, gray, each) for each in channels]
        return ops.stack(channels, axis=-1)

    def _check(self, shapes: Sequence[Sequence[int | None]]) -> None:
        images, numbers = shapes
        count = len(RandomChanges.COLUMNS)
        if len(images) != 4 or images[3] != 3:
            raise ValueError(
                "The images must be RGB, `[batch, height, width, 3]`. "
                f"Received: shape={tuple(images)}."
            )
        if len(numbers) != 2 or numbers[1] != count:
            raise ValueError(
                f"The numbers must be those of `RandomChanges.numbers`, {count} per "
                f"image. Received: shape={tuple(numbers)}."
            )
        if None not in (images[0], numbers[0]) and images[0] != numbers[0]:
            raise ValueError(
                "Each image must have its row of numbers. "
                f"Received: {images[0]} images and {numbers[0]} rows."
            )
        if None not in images[:3]:
            batch, height, width = (int(size or 0) for size in images[:3])
            if batch * (height + 2) * (width + 2) > _MOST_PIXELS:
                raise ValueError(
                    f"A batch must have at most {_MOST_PIXELS} pixels. "
                    f"Received: shape={tuple(images)}."
                )

    def compute_output_shape(self, input_shape: Sequence[Any]) -> Any:
        """Return the shape of the images."""
        self._check(_pair(input_shape))
        return tuple(input_shape[0])

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "changes": dataclasses.asdict(self.changes)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the layer of a config."""
        return cls(**{**config, "changes": RandomChanges(**config["changes"])})


def _pair(inputs: Any) -> Any:
    if not isinstance(inputs, list | tuple) or len(inputs) != 2:
        raise ValueError(
            "`ImageChanges` is called on a list of two: images and their numbers. "
            f"Received: {shown(inputs)}."
        )
    return inputs


def _kept(changed: Callable, unchanged: Callable, numbers: Tensor) -> Any:
    """Return what is changed, to be computed once however often it is used.

    For a CPU, XLA fuses a value into each of its uses: each channel of a pixel would
    resample all three several times. It keeps the result of a branch, here on whether
    there is any change in the batch. A GPU would wait for the decision.
    """
    if has_gpu():
        return changed()
    neutral = RandomChanges().numbers(0, 0, 1)
    return cond(ops.any(ops.not_equal(numbers, neutral)), changed, unchanged)


def _between(place: Tensor, size: Any) -> tuple[Tensor, Tensor]:
    """Return the pixel before a place, counted from that of the frame, and the rest."""
    place = ops.clip(place, -1, size)
    before = ops.minimum(ops.floor(place), ops.cast(size - 1, place.dtype))
    return ops.cast(before, "int32") + 1, place - before


def _mixed(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return first + (second - first) * share


def _clipped(values: Tensor) -> Tensor:
    return ops.clip(values, 0, 255)


def _largest(channels: Sequence[Tensor]) -> Tensor:
    red, green, blue = channels
    return ops.maximum(ops.maximum(red, green), blue)


def _with_hue(channels: Sequence[Tensor], turn: Tensor) -> list[Tensor]:
    """Turn the hue as in HSV: a channel falls from the largest by how far it is off."""
    red, green, blue = channels
    largest = _largest(channels)
    extent = largest - ops.minimum(ops.minimum(red, green), blue)
    # Gray has no hue; whatever it gets is multiplied by 0.
    divisor = ops.where(extent > 0, extent, 1.0)
    hue = ops.where(
        largest == red,
        (green - blue) / divisor,
        ops.where(
            largest == green,
            2 + (blue - red) / divisor,
            4 + (red - green) / divisor,
        ),
    )  # in sixths of a turn
    hue = hue + 6 * turn
    return [largest - extent * ops.clip(_off(hue + start), 0, 1) for start in (5, 3, 1)]


def _off(hue: Tensor) -> Tensor:
    """Return min(k, 4 - k) of k = hue mod 6."""
    k = hue - 6 * ops.floor(hue / 6)
    return ops.minimum(k, 4 - k)
