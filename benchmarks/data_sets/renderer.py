"""Render models by OpenGL through EGL, without a screen or a graphics card."""

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.data_sets.wavefront import Part

_VERTEX_SHADER = """
#version 330
uniform mat4 camera;
in vec3 position; in vec3 normal; in vec2 place;
out vec3 n; out vec2 uv;
void main() {
    gl_Position = camera * vec4(position, 1.0);
    n = normal;
    uv = place;
}
"""
# Both sides of a surface are lit: many models have faces that are turned inside out.
_FRAGMENT_SHADER = """
#version 330
uniform vec4 color; uniform vec3 light; uniform bool textured; uniform sampler2D image;
in vec3 n; in vec2 uv;
out vec4 shown;
void main() {
    vec4 base = textured ? vec4(texture(image, uv)) * vec4(1, 1, 1, color.a) : color;
    if (base.a < 0.05) discard;
    float shade = 0.4 + 0.6 * abs(dot(normalize(n), light));
    shown = vec4(base.rgb * shade, base.a);
}
"""
_SHARPNESS = 2  # drawn this many times larger, then averaged


@dataclass(frozen=True)
class View:
    """How a model is looked at; angles in degrees.

    Args:
        azimuth: Turn around the upright axis.
        elevation: 0 looks from the side, 90 from above.
        zoom: 1 fits the sphere around the model into the image.
        shift: To the right and up, as shares of the image.
        light: Where the light comes from, relative to the camera; unit length.
        background: Red, green and blue, 0 to 1.
    """

    azimuth: float
    elevation: float
    zoom: float
    shift: tuple[float, float]
    light: tuple[float, float, float]
    background: tuple[float, float, float]


class Renderer:
    """Draws models into square images.

    Args:
        size: Side of the images in pixels.

    Raises:
        RuntimeError: moderngl is not installed, or there is no EGL driver.
    """

    def __init__(self, size: int) -> None:
        try:
            import moderngl
        except ModuleNotFoundError as error:
            raise RuntimeError(
                "Rendering needs the package moderngl: `pip install '.[test-data]'`."
            ) from error
        try:
            backend: dict[str, Any] = {"backend": "egl"}
            self._context: Any = moderngl.create_context(standalone=True, **backend)
        except Exception as error:  # moderngl raises plain Exception
            raise RuntimeError(
                f"OpenGL through EGL cannot be started ({error}). On Debian: "
                "`apt install libegl1 libgl1-mesa-dri`."
            ) from error
        self._size = size
        side = size * _SHARPNESS
        self._frame = self._context.framebuffer(
            [self._context.renderbuffer((side, side), 3)],
            self._context.depth_renderbuffer((side, side)),
        )
        self._program: Any = self._context.program(
            vertex_shader=_VERTEX_SHADER, fragment_shader=_FRAGMENT_SHADER
        )
        self._context.enable(moderngl.DEPTH_TEST | moderngl.BLEND)

    def draw(self, parts: list[Part], views: Iterable[View]) -> list[np.ndarray]:
        """Draw a model, its y axis upright, from each of the views.

        Returns:
            A uint8 image `[size, size, 3]` for each view.
        """
        points = np.concatenate([part.vertices[:, :3] for part in parts])
        center = (points.min(axis=0) + points.max(axis=0)) / 2
        radius = float(np.linalg.norm(points - center, axis=1).max()) or 1.0
        loaded = [self._load(part) for part in parts]
        try:
            return [self._draw(loaded, center, radius, view) for view in views]
        finally:
            for _, *resources in loaded:
                for resource in resources:
                    if resource is not None:
                        resource.release()

    def _load(self, part: Part) -> tuple[Part, Any, Any, Any]:
        buffer = self._context.buffer(part.vertices.astype("float32").tobytes())
        array = self._context.vertex_array(
            self._program, [(buffer, "3f 3f 2f", "position", "normal", "place")]
        )
        texture = None
        if part.material.texture is not None:
            with Image.open(io.BytesIO(part.material.texture)) as image:
                image.thumbnail((1024, 1024))
                upside_down = image.convert("RGBA").transpose(
                    Image.Transpose.FLIP_TOP_BOTTOM
                )
            texture = self._context.texture(upside_down.size, 4, upside_down.tobytes())
            texture.build_mipmaps()
        return part, array, buffer, texture

    def _draw(
        self,
        loaded: list[tuple[Part, Any, Any, Any]],
        center: np.ndarray,
        radius: float,
        view: View,
    ) -> np.ndarray:
        turn = _turn(view.azimuth, view.elevation)
        camera = _camera(turn, center, radius, view)
        self._frame.use()
        self._frame.clear(*view.background)
        self._program["camera"].write(camera.T.astype("float32").tobytes())
        self._program["light"].value = tuple(turn.T @ np.array(view.light))
        for part, array, _, texture in loaded:
            self._program["color"].value = (*part.material.color, part.material.opacity)
            self._program["textured"].value = texture is not None
            if texture is not None:
                texture.use()
            array.render()
        side = self._size * _SHARPNESS
        pixels = np.frombuffer(self._frame.read(components=3, alignment=1), "uint8")
        # OpenGL's first row is the lowest.
        drawn = Image.fromarray(pixels.reshape(side, side, 3)[::-1].copy())
        return np.array(drawn.reduce(_SHARPNESS))


def _turn(azimuth: float, elevation: float) -> np.ndarray:
    a, e = math.radians(azimuth), math.radians(elevation)
    around = np.array(
        [[math.cos(a), 0, math.sin(a)], [0, 1, 0], [-math.sin(a), 0, math.cos(a)]]
    )
    down = np.array(
        [[1, 0, 0], [0, math.cos(e), -math.sin(e)], [0, math.sin(e), math.cos(e)]]
    )
    return down @ around


def _camera(
    turn: np.ndarray, center: np.ndarray, radius: float, view: View
) -> np.ndarray:
    """From a sphere around the model to the cube that OpenGL draws, in perspective."""
    distance, near, far = 4.0, 2.5, 5.5  # in radii
    pose = np.eye(4)
    pose[:3, :3] = turn / radius
    pose[:3, 3] = -turn @ center / radius - np.array([0, 0, distance])
    # The sphere seen from `distance` fills the image at zoom 1.
    focus = view.zoom * math.sqrt(distance**2 - 1)
    project = np.array(
        [
            [focus, 0, -2 * view.shift[0], 0],
            [0, focus, -2 * view.shift[1], 0],
            [0, 0, (far + near) / (near - far), 2 * far * near / (near - far)],
            [0, 0, -1, 0],
        ]
    )
    return project @ pose
