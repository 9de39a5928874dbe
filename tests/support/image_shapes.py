"""The shapes of the images of a data set."""

from tfdml.images import read_image
from training.data.data_set import DataSet


def read_shape(data: DataSet, position: int) -> tuple[int, ...]:
    """Return the shape of what an image's box shows, as its file is."""
    image = read_image(data.images[position])
    if data.boxes is None or not data.boxes[position].any():
        return image.shape
    x, y, width, height = data.boxes[position]
    return image[y : y + height, x : x + width].shape
