"""Build the pose set: a figure in poses of motion capture, labeled by its joints.

The label of an image is continuous: the places of 15 joints, for losses such as
log-ratio. Clips and figure come with the PyPI package pybullet 3.2.7.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tfdml.files import written
from tfdml.images import encode_png
from tfdml.progress import tracked
from training.data.data_set import DataSet
from training.data.manifest import write_manifest

TEST_CLIPS = ("dance_a", "getup_faceup", "kick", "run", "walk")
_SHA256 = "f7391e56566663f2648158e1c20095cca3908565ba22cc5453caaf16fa8fafc6"
# Joint of the figure -> where its rotation begins in a frame, and its length: a
# quaternion (w, x, y, z), or an angle. The order is that of the DeepMimic clips.
_ROTATIONS = {
    "chest": (8, 4),
    "neck": (12, 4),
    "right_hip": (16, 4),
    "right_knee": (20, 1),
    "right_ankle": (21, 4),
    "right_shoulder": (25, 4),
    "right_elbow": (29, 1),
    "left_hip": (30, 4),
    "left_knee": (34, 1),
    "left_ankle": (35, 4),
    "left_shoulder": (39, 4),
    "left_elbow": (43, 1),
}
_SECONDS = 0.034  # between two images of a clip, if it has as many frames


def build_pose(
    folder: str | os.PathLike[str],
    *,
    size: int = 96,
    views: int = 4,
    frames: int | None = None,
) -> DataSet:
    """Draw `clip/frame_view.png` and write `manifest.csv` and `ATTRIBUTION.md`.

    One frame is drawn about every 0.034 s of motion, from azimuths between -60 and 60
    degrees at the height of the figure. Colors and azimuth are random, seeded by the
    name of the image. Five clips (`TEST_CLIPS`) test, the others train; the clip is
    the sequence of the manifest, for neighboring frames are nearly the same. Images
    that are already there are kept.

    Args:
        folder: Where the images go.
        size: Side of the square images in pixels.
        views: Images of each frame.
        frames: Draw this many frames of each clip alone, evenly spread.

    Returns:
        The data set as written. Labels are `[N, 45]`: x (right), y (up) and z (toward
        the camera) of 15 joints in metres, with their mean taken off.

    Raises:
        RuntimeError: pybullet is missing, or its clips are not those of 3.2.7.
    """
    if size < 8 or views < 1 or (frames is not None and frames < 1):
        raise ValueError(
            "`size` must be at least 8, `views` and `frames` 1. "
            f"Received: size={size}, views={views}, frames={frames}."
        )
    folder = Path(folder)
    clips, figure = _files()
    import pybullet

    client = pybullet.connect(pybullet.DIRECT)
    try:
        body = pybullet.loadURDF(
            str(figure),
            globalScaling=0.25,
            useFixedBase=True,
            flags=pybullet.URDF_MAINTAIN_LINK_ORDER,
            physicsClientId=client,
        )
        images, labels, sequences = [], [], []
        for clip in tracked(clips, "rendering", len(clips), "clips"):
            name = clip.stem.removeprefix("humanoid3d_")
            for number, frame in _frames(clip, frames):
                _pose(pybullet, client, body, frame)
                for view in range(views):
                    path = folder / name / f"{number:03}_{view}.png"
                    label = _draw(pybullet, client, body, path, size, view, views)
                    images.append(path)
                    labels.append(label)
                    sequences.append(name)
    finally:
        pybullet.disconnect(client)
    data = DataSet(
        images=tuple(images),
        labels=np.array(labels),
        splits=np.where(np.isin(sequences, TEST_CLIPS), "test", "train"),
        sequences=np.array(sequences),
    )
    (folder / "ATTRIBUTION.md").write_text(
        "# Where these images come from\n\n"
        "Motion capture clips (humanoid3d_*.txt, of DeepMimic) and the figure "
        "(humanoid.urdf) of the PyPI package pybullet 3.2.7, zlib license, "
        "https://pybullet.org; drawn with its TinyRenderer. The package does not state "
        "where each clip was captured.\n",
        encoding="utf-8",
    )
    # The last file: with it the set is complete.
    write_manifest(data, folder / "manifest.csv")
    return data


def _files() -> tuple[list[Path], Path]:
    try:
        import pybullet_data
    except ModuleNotFoundError as error:
        raise RuntimeError(
            "The pose set needs the package pybullet: `pip install '.[test-data]'`."
        ) from error
    root = Path(pybullet_data.getDataPath())
    clips = sorted((root / "data" / "motions").glob("humanoid3d_*.txt"))
    figure = root / "humanoid" / "humanoid.urdf"
    digest = hashlib.sha256()
    for path in (*clips, figure):
        digest.update(path.read_bytes())
    if digest.hexdigest() != _SHA256:
        raise RuntimeError(
            "The clips and the figure must be those of pybullet 3.2.7, of SHA-256 "
            f"{_SHA256}. Received: {digest.hexdigest()}. "
            "`pip install '.[test-data]'` brings them."
        )
    return clips, figure


def _frames(clip: Path, count: int | None) -> list[tuple[int, np.ndarray]]:
    """Return (number, values) of the frames to draw."""
    frames = np.array(json.loads(clip.read_text(encoding="utf-8"))["Frames"])
    chosen = np.arange(0, len(frames), max(1, round(_SECONDS / frames[0, 0])))
    if count is not None and count < len(chosen):
        chosen = chosen[np.linspace(0, len(chosen) - 1, count).round().astype(int)]
    return [(int(i), frames[i]) for i in chosen]


def _pose(pybullet: Any, client: int, body: int, frame: np.ndarray) -> None:
    pybullet.resetBasePositionAndOrientation(
        body, [0, 0, 0], _quaternion(frame[4:8]), physicsClientId=client
    )
    count = pybullet.getNumJoints(body, physicsClientId=client)
    about = [
        pybullet.getJointInfo(body, i, physicsClientId=client) for i in range(count)
    ]
    places = {info[12].decode("ascii"): info[0] for info in about}
    for name, (start, length) in _ROTATIONS.items():
        values = frame[start : start + length]
        rotation = _quaternion(values) if length == 4 else values.tolist()
        pybullet.resetJointStateMultiDof(
            body, places[name], rotation, physicsClientId=client
        )


def _quaternion(values: np.ndarray) -> list[float]:
    """From (w, x, y, z), as the clips have it, to pybullet's (x, y, z, w)."""
    return np.roll(values, -1).tolist()


def _draw(
    pybullet: Any, client: int, body: int, path: Path, size: int, view: int, views: int
) -> np.ndarray:
    """Draw an image unless it is there, and return its label."""
    seed = hashlib.sha256(f"{path.parent.name}/{path.name}".encode()).digest()
    generator = np.random.default_rng(list(seed))
    azimuth = np.radians(-60 + 120 * (view + generator.uniform()) / views)
    eye = [2.6 * np.sin(azimuth), 0, 2.6 * np.cos(azimuth)]
    camera = pybullet.computeViewMatrix(eye, [0, 0, 0], [0, 1, 0])
    count = pybullet.getNumJoints(body, physicsClientId=client)
    states = pybullet.getLinkStates(
        body, range(count), computeForwardKinematics=True, physicsClientId=client
    )
    joints = np.array([state[4] for state in states])
    joints = (joints - joints.mean(axis=0)) @ np.reshape(camera, (4, 4))[:3, :3]
    label = np.round(joints, 6).reshape(-1)
    if path.exists():
        with Image.open(path) as image:
            if image.size == (size, size):
                return label
    for link in range(-1, count):
        color = [*generator.uniform(0.1, 1, 3), 1]
        pybullet.changeVisualShape(body, link, rgbaColor=color, physicsClientId=client)
    _, _, pixels, _, seen = pybullet.getCameraImage(
        size,
        size,
        camera,
        pybullet.computeProjectionMatrixFOV(45, 1, 0.1, 10),
        renderer=pybullet.ER_TINY_RENDERER,
        physicsClientId=client,
    )
    rendered = np.reshape(pixels, (size, size, 4))[..., :3].astype("uint8")
    is_background = np.reshape(seen, (size, size)) < 0
    rendered[is_background] = generator.integers(60, 256, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as new:
        new.write_bytes(encode_png(rendered))
    return label
