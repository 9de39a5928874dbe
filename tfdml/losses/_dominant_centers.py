"""Find the center of each class that most of its images are near."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml.messages import shown


class DominantCenters(NamedTuple):
    """The dominant center of each class, and how far images are from it."""

    centers: NDArray[np.int64]
    """The number of the dominant center of each class, `[num_classes]`; 0 for a class
    without images."""
    angles: NDArray[np.float64]
    """The angle in degrees between each image and the dominant center of its class,
    `[N]`."""


def dominant_centers(similarities: ArrayLike, labels: ArrayLike) -> DominantCenters:
    """Find the dominant centers after training with `SubCenterArcFaceLoss`.

    Each image counts for the nearest center of its class, and the center of most images
    is dominant; of several, the first. Images far from it are wrongly labeled or hard.
    The paper leaves out those beyond 75 degrees and trains again, with one center per
    class.

    Args:
        similarities: Cosine similarities of the training images with all centers,
            `[N, num_classes, centers_per_class]`, as a model that ends in
            `tfdml.layers.Proxies` predicts.
        labels: The class of each image, 0 to `num_classes` - 1, whole numbers `[N]`.

    Returns:
        The dominant centers, and the angles.

    Raises:
        ValueError: The shapes do not fit, or a label has no center.

    Example:
        >>> similarities = np.array([[[0.9, 0.1]], [[0.8, 0.0]], [[0.0, 1.0]]])
        >>> found = dominant_centers(similarities, [0, 0, 0])
        >>> found.centers.tolist(), (found.angles > 75).tolist()
        ([0], [False, False, True])

    Reference:
        Deng, Guo, Liu, Gong and Zafeiriou, Sub-center ArcFace: Boosting Face
        Recognition by Large-scale Noisy Web Faces, ECCV 2020.
    """
    cosines = as_array("similarities", similarities)
    classes = as_array("labels", labels)
    if cosines.ndim != 3 or cosines.dtype.kind not in "iuf":
        raise ValueError(
            "`similarities` must be numbers [N, num_classes, centers_per_class]. "
            f"Received: shape={cosines.shape}, dtype={cosines.dtype}."
        )
    if classes.shape != cosines.shape[:1] or classes.dtype.kind not in "iu":
        raise ValueError(
            f"`labels` must be {len(cosines)} whole numbers, one for each row of "
            f"`similarities`. Received: {shown(labels)}."
        )
    wrong = classes[(classes < 0) | (classes >= cosines.shape[1])]
    if wrong.size:
        raise ValueError(
            f"`labels` must be from 0 to {cosines.shape[1] - 1}, the numbers of the "
            f"classes. Received: {wrong[0]}."
        )
    rows = np.arange(len(cosines))
    own = cosines[rows, classes].astype(np.float64)
    votes = np.zeros(cosines.shape[1:], np.int64)
    if own.size:
        np.add.at(votes, (classes, own.argmax(axis=1)), 1)
    centers = votes.argmax(axis=1)
    near = np.clip(own[rows, centers[classes]], -1, 1)
    return DominantCenters(centers, np.degrees(np.arccos(near)))
