"""Build the networks of the papers that `keras.applications` lacks."""

from collections.abc import Callable
from dataclasses import dataclass

import keras
from keras import layers

from tfdml._core.tensors import Tensor
from tfdml.command_parser import command
from tfdml.layers import ColorTransform
from tfdml.messages import shortened, shown

_SMALLEST = 32  # pixels; below, the last feature map has no pixel

# Channels of a block of BN-Inception: 1 x 1; 3 x 3 and its reduction; double 3 x 3 and
# its reduction; the projection of the pool. A block without the first and the last
# halves the resolution.
_BN_INCEPTION = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}
# Of a block of GoogLeNet: 1 x 1; reduction and 3 x 3; reduction and "5 x 5"; the
# projection of the pool.
_GOOGLENET = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
# Blocks and channels of each stage.
_RESNET34 = ((3, 64), (4, 128), (6, 256), (3, 512))


@dataclass(frozen=True)
class PublishedNetwork:
    """A network whose weights are published for PyTorch.

    Args:
        build: Makes the layers, from preprocessed images to feature maps. A layer is
            named as the module in the published file, with "_" in place of ".".
        preprocess: Makes the layer before it, for RGB of 0 to 255.
        address: Where the weights are.
        top: First parts of the names of what lies behind the feature maps.
    """

    build: Callable[[Tensor], Tensor]
    preprocess: Callable[[], ColorTransform]
    address: str
    top: tuple[str, ...]

    @property
    def file(self) -> str:
        """Name of the published file."""
        return self.address.rpartition("/")[2]


def layers_of(backbone: str, image_size: int) -> keras.Model:
    """Build a network with random weights, from images to feature maps.

    Args:
        backbone: A name in `PUBLISHED_NETWORKS`.
        image_size: Side of the images in pixels.

    Raises:
        ValueError: The images are too small.
    """
    if image_size < _SMALLEST:
        raise ValueError(
            f"`image_size` must be at least {_SMALLEST} with the backbone {backbone}. "
            f"Received: image_size={shown(image_size)}."
        )
    images = keras.Input((image_size, image_size, 3))
    return keras.Model(
        images, PUBLISHED_NETWORKS[backbone].build(images), name=backbone
    )


def published_network(
    backbone: str, image_size: int, weights: str | None
) -> tuple[ColorTransform, keras.Model]:
    """Build the preprocessing of a network and the network, with its weights.

    Args:
        backbone: A name in `PUBLISHED_NETWORKS`.
        image_size: Side of the images in pixels.
        weights: Path of a file that `convert_weights` wrote; None for random ones.

    Raises:
        ValueError: The images are too small, or the file cannot be loaded.
    """
    about = PUBLISHED_NETWORKS[backbone]
    network = layers_of(backbone, image_size)
    if weights is not None:
        try:
            network.load_weights(weights)
        except MemoryError:
            raise
        except Exception as error:  # Keras lets through what h5py and zipfile raise
            convert = f"convert {backbone} {about.file} {backbone}.weights.h5"
            raise ValueError(
                f"`weights` of {backbone} must be a .weights.h5 file. Fetch "
                f"{about.address} and convert it: {command('training', convert)}. "
                f"Received: weights={shown(weights, 80)} ({shortened(error, 80)})."
            ) from error
    return about.preprocess(), network


def _bn_inception(x: Tensor) -> Tensor:
    x = _stem(x, "conv1_7x7_s2", "conv2_3x3_reduce", "conv2_3x3", _with_bias)
    for block, widths in _BN_INCEPTION.items():
        x = _bn_inception_block(x, f"inception_{block}_", widths)
    return x


def _bn_inception_block(x: Tensor, name: str, widths: tuple[int, ...]) -> Tensor:
    single, reduced, triple, reduced_twice, double, projected = widths
    stride = 1 if single else 2
    branches = []
    if single:
        branches.append(_with_bias(x, f"{name}1x1", single))
    y = _with_bias(x, f"{name}3x3_reduce", reduced)
    branches.append(_with_bias(y, f"{name}3x3", triple, 3, stride))
    y = _with_bias(x, f"{name}double_3x3_reduce", reduced_twice)
    y = _with_bias(y, f"{name}double_3x3_1", double, 3)
    branches.append(_with_bias(y, f"{name}double_3x3_2", double, 3, stride))
    if not single:
        # As many windows as the convolutions have, also where the side is odd.
        branches.append(_max_pool(x, windows=branches[0].shape[1]))
    else:
        if name.endswith("5b_"):
            y = layers.MaxPooling2D(3, strides=1, padding="same")(x)
        else:
            # The zeros around the map count in the average, as in Caffe.
            y = layers.AveragePooling2D(3, strides=1)(layers.ZeroPadding2D(1)(x))
        branches.append(_with_bias(y, f"{name}pool_proj", projected))
    return layers.Concatenate()(branches)


def _googlenet(x: Tensor) -> Tensor:
    x = _stem(x, "conv1", "conv2", "conv3", _without_bias)
    for block, widths in _GOOGLENET.items():
        if block == "4a":
            x = _max_pool(x)
        elif block == "5a":
            x = layers.MaxPooling2D(2, padding="same")(x)
        x = _googlenet_block(x, f"inception{block}_branch", widths)
    return x


def _googlenet_block(x: Tensor, name: str, widths: tuple[int, ...]) -> Tensor:
    single, reduced, triple, reduced_large, large, projected = widths
    y = _without_bias(x, f"{name}2_0", reduced)
    z = _without_bias(x, f"{name}3_0", reduced_large)
    pooled = layers.MaxPooling2D(3, strides=1, padding="same")(x)
    return layers.Concatenate()(
        [
            _without_bias(x, f"{name}1", single),
            _without_bias(y, f"{name}2_1", triple, 3),
            # The published weights have 3 x 3 where the paper has 5 x 5.
            _without_bias(z, f"{name}3_1", large, 3),
            _without_bias(pooled, f"{name}4_1", projected),
        ]
    )


def _resnet34(x: Tensor) -> Tensor:
    x = layers.ReLU()(_convolution(x, "conv1", "bn1", 64, 7, 2))
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
    for stage, (blocks, width) in enumerate(_RESNET34, start=1):
        for block in range(blocks):
            halves = stage > 1 and block == 0
            x = _resnet34_block(x, f"layer{stage}_{block}_", width, halves)
    return x


def _resnet34_block(x: Tensor, name: str, width: int, halves: bool) -> Tensor:
    stride = 2 if halves else 1
    y = _convolution(x, f"{name}conv1", f"{name}bn1", width, 3, stride)
    y = _convolution(layers.ReLU()(y), f"{name}conv2", f"{name}bn2", width, 3)
    if halves:
        shortcut = f"{name}downsample_"
        x = _convolution(x, f"{shortcut}0", f"{shortcut}1", width, 1, stride)
    return layers.ReLU()(layers.Add()([x, y]))


def _stem(
    x: Tensor, first: str, second: str, third: str, convolution: Callable[..., Tensor]
) -> Tensor:
    """Append what the two Inception networks begin with."""
    x = _max_pool(convolution(x, first, 64, 7, 2))
    x = convolution(convolution(x, second, 64), third, 192, 3)
    return _max_pool(x)


def _with_bias(
    x: Tensor, name: str, width: int, kernel: int = 1, stride: int = 1
) -> Tensor:
    """Append a convolution of BN-Inception."""
    x = _convolution(x, name, f"{name}_bn", width, kernel, stride, use_bias=True)
    return layers.ReLU()(x)


def _without_bias(
    x: Tensor, name: str, width: int, kernel: int = 1, stride: int = 1
) -> Tensor:
    """Append a convolution of GoogLeNet."""
    names = f"{name}_conv", f"{name}_bn"
    x = _convolution(x, *names, width, kernel, stride, epsilon=1e-3)
    return layers.ReLU()(x)


def _convolution(
    x: Tensor,
    name: str,
    norm: str,
    width: int,
    kernel: int,
    stride: int = 1,
    *,
    use_bias: bool = False,
    epsilon: float = 1e-5,
) -> Tensor:
    """Append a convolution and the batch normalization of its result."""
    if stride > 1 and kernel > 1:
        # Keras would put all of an odd padding at the end.
        x, padding = layers.ZeroPadding2D(kernel // 2)(x), "valid"
    else:
        padding = "same"
    x = layers.Conv2D(
        width,
        kernel,
        strides=stride,
        padding=padding,
        use_bias=use_bias,
        kernel_initializer="he_normal",
        name=name,
    )(x)
    # PyTorch's momentum of 0.1 is Keras' 0.9.
    return layers.BatchNormalization(momentum=0.9, epsilon=epsilon, name=norm)(x)


def _max_pool(x: Tensor, windows: int | None = None) -> Tensor:
    """Append a pool of 3 x 3 windows at a distance of 2 that begins in the corner.

    The last window may reach beyond the map. Zeros stand there: all maps that are
    pooled come from a ReLU, so a zero is never above the largest value.
    """
    side = x.shape[1]
    if windows is None:
        windows = -(-(side - 3) // 2) + 1
    beyond = 2 * windows + 1 - side
    if beyond:
        x = layers.ZeroPadding2D(((0, beyond), (0, beyond)))(x)
    return layers.MaxPooling2D(3, strides=2)(x)


def _caffe_colors() -> ColorTransform:
    """Return the map to BGR, less the mean color."""
    swap = [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    return ColorTransform(swap, [-104, -117, -128], name="preprocessing")


def _scaled_colors(mean: list[float], deviation: list[float]) -> ColorTransform:
    """Return the map from RGB of 0 to 255 to (RGB / 255 - mean) / deviation."""
    matrix = [[0.0] * 3 for _ in range(3)]
    for channel, value in enumerate(deviation):
        matrix[channel][channel] = 1 / (255 * value)
    offset = [-m / d for m, d in zip(mean, deviation, strict=True)]
    return ColorTransform(matrix, offset, name="preprocessing")


_TORCHVISION = "https://download.pytorch.org/models/"

PUBLISHED_NETWORKS = {
    "bn_inception": PublishedNetwork(
        _bn_inception,
        _caffe_colors,
        "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth",
        ("last_linear.",),
    ),
    "googlenet": PublishedNetwork(
        _googlenet,
        lambda: _scaled_colors([0.5] * 3, [0.5] * 3),
        f"{_TORCHVISION}googlenet-1378be20.pth",
        ("fc.", "aux1.", "aux2."),
    ),
    "resnet34": PublishedNetwork(
        _resnet34,
        lambda: _scaled_colors([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        f"{_TORCHVISION}resnet34-b627a593.pth",
        ("fc.",),
    ),
}
