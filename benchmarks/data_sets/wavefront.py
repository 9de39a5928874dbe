"""Read Wavefront OBJ models with their MTL materials, as triangles."""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True)
class Material:
    """How a surface looks.

    Args:
        color: Red, green and blue, 0 to 1.
        opacity: 1 is opaque.
        texture: Encoded image that takes the place of the color, or None.
    """

    color: tuple[float, float, float] = (0.7, 0.7, 0.7)
    opacity: float = 1.0
    texture: bytes | None = None


@dataclass(frozen=True)
class Part:
    """Triangles of one material.

    Args:
        material: How they look.
        vertices: float32 `[3 T, 8]`: position, normal of unit length, texture place.
    """

    material: Material
    vertices: np.ndarray


def read_model(name: str, read: Callable[[str], bytes]) -> list[Part]:
    """Read a model; polygons become fans of triangles.

    Args:
        name: Path of the OBJ file.
        read: Gives the bytes of a file; KeyError where there is none.

    Returns:
        The parts, those that are see-through last. A material or a texture that is
        missing is replaced by plain gray, as other viewers do.
    """
    points: list[list[float]] = []
    places: list[list[float]] = []
    normals: list[list[float]] = []
    materials: dict[str, Material] = {}
    faces: dict[str, list[tuple[int, int, int]]] = {}
    current = ""
    for line in read(name).decode("latin-1").splitlines():
        words = line.split()
        if not words:
            continue
        kind = words[0]
        if kind == "v":
            points.append([float(word) for word in words[1:4]])
        elif kind == "vt":
            places.append([float(word) for word in words[1:3]])
        elif kind == "vn":
            normals.append([float(word) for word in words[1:4]])
        elif kind == "f":
            counts = (len(points), len(places), len(normals))
            corners = [_corner(word, counts) for word in words[1:]]
            triangles = faces.setdefault(current, [])
            for second, third in pairwise(corners[1:]):
                triangles += [corners[0], second, third]
        elif kind == "usemtl":
            current = " ".join(words[1:])
        elif kind == "mtllib":
            path = posixpath.join(posixpath.dirname(name), " ".join(words[1:]))
            materials.update(_read_materials(path, read))
    arrays = (
        np.array(points, dtype="float32").reshape(-1, 3),
        np.array([*places, [0, 0]], dtype="float32"),
        np.array([*normals, [0, 0, 0]], dtype="float32"),
    )
    parts = [
        Part(materials.get(name, Material()), _vertices(np.array(corners), *arrays))
        for name, corners in faces.items()
        if corners
    ]
    return sorted(parts, key=lambda part: part.material.opacity < 1)


def _corner(word: str, counts: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return positions from 0; -1, the row of zeros, where one is left out."""
    found = [-1, -1, -1]
    for i, text in enumerate(word.split("/")[:3]):
        if text:
            number = int(text)
            found[i] = number - 1 if number > 0 else counts[i] + number
    return found[0], found[1], found[2]


def _vertices(
    corners: np.ndarray, points: np.ndarray, places: np.ndarray, normals: np.ndarray
) -> np.ndarray:
    position = points[corners[:, 0]]
    triangles = position.reshape(-1, 3, 3)
    flat = np.cross(
        triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    )
    normal = normals[corners[:, 2]]
    is_missing = np.linalg.norm(normal, axis=1) < 1e-12
    normal[is_missing] = np.repeat(flat, 3, axis=0)[is_missing]
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = normal / np.maximum(length, 1e-12)
    return np.concatenate([position, normal, places[corners[:, 1]]], axis=1)


def _read_materials(path: str, read: Callable[[str], bytes]) -> dict[str, Material]:
    try:
        text = read(posixpath.normpath(path)).decode("latin-1")
    except KeyError:
        return {}
    about: dict[str, dict] = {}
    name = ""
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if words[0] == "newmtl":
            name = " ".join(words[1:])
            about[name] = {}
        elif words[0] == "Kd" and name:
            red, green, blue = (min(1.0, float(word)) for word in words[1:4])
            about[name]["color"] = (red, green, blue)
        elif words[0] == "d" and name:
            about[name]["opacity"] = float(words[-1])
        elif words[0] == "map_Kd" and name:
            file = posixpath.join(posixpath.dirname(path), " ".join(words[1:]))
            try:
                about[name]["texture"] = read(posixpath.normpath(file))
            except KeyError:
                continue
    return {name: Material(**values) for name, values in about.items()}
