"""Views of images: which pixels they show, against Pillow's own steps."""

import numpy as np
import pytest
from PIL import Image

from tfdml.images import RandomView, View

SIZES = [(300, 400), (400, 300), (301, 467), (256, 256), (120, 90), (17, 11), (1, 1)]
BILINEAR = Image.Resampling.BILINEAR


def photograph(height, width):
    """Return an image with smooth areas, an edge and some noise."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([x * 255 / width, y * 255 / height, (x + y) % 256], axis=2)
    smooth[height // 4 : height // 2, width // 3 :] = [200, 30, 60]
    noisy = smooth + generator.normal(0, 8, smooth.shape)
    return np.clip(noisy, 0, 255).astype("uint8")


def write_photographs(folder):
    """Write six images of different sizes, each brighter than the one before."""
    paths = []
    for i in range(6):
        image = photograph(40 + 5 * i, 60 - 4 * i) // 2 + 20 * i
        paths.append(folder / f"{i}.{'png' if i % 2 else 'jpg'}")
        Image.fromarray(image).save(paths[-1])
    return tuple(paths)


def in_two_steps(image, size, resize):
    """Resize the shorter side, cut from the middle: the papers' words in Pillow."""
    height, width = image.shape[:2]
    shorter = min(height, width)
    tall, wide = resize * height // shorter, resize * width // shorter
    resized = Image.fromarray(image).resize((wide, tall), BILINEAR)
    top, left = (tall - size) // 2, (wide - size) // 2
    return np.asarray(resized)[top : top + size, left : left + size]


def assert_equal_within_a_level(received, expected):
    assert received.dtype == np.uint8
    assert received.shape == expected.shape
    levels = np.abs(received.astype(int) - expected.astype(int))
    assert levels.max() <= 1
    assert levels.mean() <= 0.25


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize(("size", "resize"), [(227, 256), (32, 32), (31, 40)])
def test_central_view_is_resized_then_cut_from_the_middle(height, width, size, resize):
    image = photograph(height, width)
    received = View(size, resize).central(image)
    assert_equal_within_a_level(received, in_two_steps(image, size, resize))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_without_resize_the_whole_image_is_squashed(height, width):
    image = photograph(height, width)
    expected = Image.fromarray(image).resize((40, 40), BILINEAR)
    assert_equal_within_a_level(View(40).central(image), np.asarray(expected))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_padded_view_has_black_bands_of_equal_width(height, width):
    image = photograph(height, width)
    side = max(height, width)
    square = np.zeros((side, side, 3), "uint8")
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = image
    received = View(45, resize=50, pad=True).central(image)
    assert_equal_within_a_level(received, in_two_steps(square, 45, 50))


@pytest.mark.parametrize("view", [View(20), View(20, 24), View(20, 24, pad=True)])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_reducing_an_image_changes_nothing_of_its_views(view, height, width):
    image = photograph(height, width)
    small = view.reduced(image)
    assert max(small.shape) <= max(24 * max(height, width) // min(height, width), 24)
    np.testing.assert_array_equal(view.reduced(small), small)
    np.testing.assert_array_equal(view.central(small), view.central(image))
    if view.resize:
        for seed in range(3):
            first, second = (
                RandomView(view, "position")(p, np.random.default_rng(seed))
                for p in (image, small)
            )
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("shape", [(1, 100_000), (100_000, 1)])
def test_a_line_of_pixels_is_not_enlarged_to_gigabytes(shape, pad):
    """As whole, it would be 256 x 25,600,000 pixels, or padded 30 GB."""
    line = np.full((*shape, 3), 200, "uint8")
    view = View(227, 256, pad=pad)
    assert view.central(line).shape == (227, 227, 3)
    cut = RandomView(view, "position")(line, np.random.default_rng(0))
    assert cut.max() <= 200
    assert view.reduced(line).size <= 3 * 256 * 256 + line.size


@pytest.mark.parametrize("shape", [(32, 32), (64, 96), (20, 30)])
def test_each_position_is_cut_equally_often(shape):
    """Columns tell where the square was cut; a uniform draw has each place."""
    random_view = RandomView(View(29, 32), "position")
    wide = 32 * shape[1] // min(shape)
    gradient = np.arange(shape[1]) * 240 / shape[1]
    image = np.broadcast_to(gradient[None, :, None], (*shape, 3)).astype("uint8")
    generator = np.random.default_rng(0)
    places = wide - 29 + 1
    draws = 40 * places
    resized = np.asarray(Image.fromarray(image).resize((wide, 32), BILINEAR))
    rows = np.stack([resized[5, left : left + 29, 0] for left in range(places)])
    counts = np.zeros(places)
    for _ in range(draws):
        square = random_view(image, generator)
        distances = np.abs(rows.astype(int) - square[5, :, 0]).sum(axis=1)
        assert distances.min() <= 29
        counts[distances.argmin()] += 1
    assert (counts > 0).all()
    # Standard deviation of each count: sqrt(40). The sum of squares is chi-square.
    assert ((counts - 40) ** 2 / 40).sum() < places + 5 * np.sqrt(2 * places)


def test_resized_part_keeps_to_its_share_of_the_area_and_its_ratio():
    """Two gradients tell the corners of the part that a square shows."""
    height, width = 200, 300
    y, x = np.mgrid[:height, :width]
    image = np.stack([x * 250 / width, y * 250 / height, 0 * x], 2).astype("uint8")
    generator = np.random.default_rng(0)
    random_view = RandomView(View(64), "resized", 0.2)
    shares, ratios = [], []
    for _ in range(300):
        square = random_view(image, generator).astype(float)
        # From the second to the last pixel but one: 61 of 64 steps.
        across = (square[30, 62, 0] - square[30, 1, 0]) / 250 * width * 64 / 61
        down = (square[62, 30, 1] - square[1, 30, 1]) / 250 * height * 64 / 61
        shares.append(across * down / (height * width))
        ratios.append(across / down)
    assert 0.18 < min(shares) < 0.3
    assert 0.75 < max(shares) < 1.02
    assert 0.72 < min(ratios) < 0.8
    assert 1.25 < max(ratios) < 1.4


def test_part_of_a_very_long_image_is_the_middle():
    image = photograph(10, 4000)
    expected = Image.fromarray(image).resize((8, 8), BILINEAR, box=(1993, 0, 2006, 10))
    random_view = RandomView(View(8), "resized", 0.9)
    received = random_view(image, np.random.default_rng(0))
    # 13 x 10 pixels, floor(3987 / 2) from the left.
    assert_equal_within_a_level(received, np.asarray(expected))


def test_same_generator_gives_the_same_view():
    image = photograph(60, 80)
    for crop in ("position", "resized"):
        first, second, other = (
            RandomView(View(20, 30), crop)(image, np.random.default_rng(seed))
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()


def test_crop_none_is_the_central_view():
    image = photograph(60, 80)
    view = View(20, 30)
    received = RandomView(view)(image, np.random.default_rng(0))
    np.testing.assert_array_equal(received, view.central(image))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_size": 0}, "`image_size` must be at least 1.*image_size=0"),
        ({"image_size": 9, "resize": 8}, "`resize` must be 0 or at least.*resize=8"),
        ({"image_size": 9, "resize": -1}, "`resize` must be 0 or at least.*resize=-1"),
        ({"image_size": 9, "pad": True}, "`pad` needs `resize`"),
    ],
)
def test_argument_out_of_range_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        View(**arguments)


@pytest.mark.parametrize("size", [2.0, "2", True])
def test_size_that_is_no_whole_number_is_refused(size):
    with pytest.raises(TypeError, match="`image_size` must be a whole number"):
        View(size)


@pytest.mark.parametrize(
    ("view", "crop", "min_scale", "message"),
    [
        (View(8), "middle", 0.5, "`crop` must be one of 'none', 'position', 'resized'"),
        (View(8), "position", 0.5, '"position" needs a `resize` above `image_size`'),
        (View(8, 8), "position", 0.5, '"position" needs a `resize` above'),
        (View(8, 9, pad=True), "resized", 0.5, "goes with no `pad`"),
        (View(8), "resized", 0.0, "`min_scale` must be above 0.*min_scale=0"),
        (View(8), "resized", 1.5, "`min_scale` must be above 0.*min_scale=1.5"),
    ],
)
def test_crop_that_cannot_be_is_refused(view, crop, min_scale, message):
    with pytest.raises(ValueError, match=message):
        RandomView(view, crop, min_scale)
