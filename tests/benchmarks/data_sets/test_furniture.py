"""The furniture set: models read, rendered, and listed."""

import hashlib
import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from benchmarks.data_sets.debian import DebianPackage, fetch_debian
from benchmarks.data_sets.furniture import build_furniture
from benchmarks.data_sets.wavefront import Material, read_model
from tfdml.images import read_image
from training.data.emoji.npm import FetchError
from training.data.manifest import check_manifest, read_manifest

CUBE = """\
mtllib box.mtl
v -1 -1 -1\nv 1 -1 -1\nv 1 1 -1\nv -1 1 -1\nv -1 -1 1\nv 1 -1 1\nv 1 1 1\nv -1 1 1
usemtl paint
f 1 2 3 4\nf 5 6 7 8\nf 1 2 6 5\nf 3 4 8 7\nf 1 4 8 5\nf -7 -6 -2 -3
"""


def files(color="1 0 0"):
    return {
        "a/box.obj": CUBE.encode(),
        "a/box.mtl": f"newmtl paint\nKd {color}\n".encode(),
    }


def test_polygons_become_triangles_with_flat_normals():
    (part,) = read_model("a/box.obj", files().__getitem__)
    assert part.material == Material(color=(1.0, 0.0, 0.0))
    assert part.vertices.shape == (6 * 2 * 3, 8)
    normals = part.vertices[:, 3:6]
    assert sorted(np.abs(normals).max(axis=1).tolist()) == [1.0] * 36
    # The last face counts from the end: vertices 2, 3, 7 and 6, at x = 1.
    assert part.vertices[-6:, 0].tolist() == [1.0] * 6


def test_given_normals_texture_and_opacity_are_read():
    texture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(texture, "PNG")
    content = {
        "m.obj": b"mtllib m.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 1\nvn 0 0 2\n"
        b"usemtl glass\nf 1/1/1 2/1/1 3/1/1\nusemtl wood\nf 1//1 2//1 3//1\n",
        "m.mtl": b"newmtl glass\nd 0.5\nnewmtl wood\nmap_Kd wood.png\n",
        "wood.png": texture.getvalue(),
    }
    wood, glass = read_model("m.obj", content.__getitem__)  # what is see-through last
    assert wood.material.texture == texture.getvalue()
    assert glass.material.opacity == 0.5
    assert glass.vertices[1].tolist() == [1, 0, 0, 0, 0, 1, 0, 1]
    assert wood.vertices[1].tolist() == [1, 0, 0, 0, 0, 1, 0, 0]


def test_missing_material_and_texture_become_gray():
    (part,) = read_model("a/box.obj", {"a/box.obj": CUBE.encode()}.__getitem__)
    assert part.material == Material()
    content = {**files(), "a/box.mtl": b"newmtl paint\nmap_Kd gone.png\n"}
    (part,) = read_model("a/box.obj", content.__getitem__)
    assert part.material == Material()


@pytest.fixture
def catalogue(tmp_path):
    """Write a catalogue of four boxes, each of a color."""
    pytest.importorskip("moderngl", reason="moderngl is not installed")
    colors = {"red": "1 0 0", "green": "0 1 0", "blue": "0 0 1", "white": "1 1 1"}
    lines = ["name=Test catalogue", "license=CC0"]
    path = tmp_path / "Test.sh3f"
    with zipfile.ZipFile(path, "w") as file:
        for i, (name, color) in enumerate(colors.items(), start=1):
            for member, data in files(color).items():
                file.writestr(f"{name}/{member}", data)
            lines += [
                f"id#{i}=Test#{name} box",
                f"category#{i}={'Kitchen' if i % 2 else 'Office'}",
                f"model#{i}=/{name}/a/box.obj",
                f"width#{i}=20",
                f"depth#{i}=30",
                f"height#{i}=40",
                f"creator#{i}=Somebody & Co",
            ]
        file.writestr("PluginFurnitureCatalog.properties", "\n".join(lines))
    return path


def test_objects_are_rendered_listed_and_attributed(catalogue, tmp_path):
    folder = tmp_path / "out"
    data = build_furniture(folder, size=32, views=3, archives=[catalogue])
    assert len(data) == 12
    assert check_manifest(folder / "manifest.csv") == []
    again = read_manifest(folder / "manifest.csv")
    assert set(again.class_names) == {
        f"Test_{name}_box" for name in ("red", "green", "blue", "white")
    }
    assert set(again.categories) == {"Kitchen", "Office"}
    counts = {s: len(again.of_split(s).class_names) for s in ("train", "test")}
    assert counts == {"train": 2, "test": 2}
    for channel, name in enumerate(("red", "green", "blue")):
        for view in range(3):
            image = read_image(folder / f"Test_{name}_box" / f"{view:02}.png")
            assert image.shape == (32, 32, 3)
            middle = image[14:18, 14:18].reshape(-1, 3)
            others = np.delete(middle, channel, axis=1)
            assert middle[:, channel].min() > 60
            assert others.max() == 0
    attribution = (folder / "ATTRIBUTION.md").read_text("utf-8")
    assert "| Test | 4 | CC0 |" in attribution
    assert "| Test_red_box | Somebody & Co |" in attribution


def test_stopped_build_goes_on_and_gives_the_same_files(catalogue, tmp_path):
    folder = tmp_path / "out"
    build_furniture(folder, size=16, views=2, archives=[catalogue])
    before = {p: p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}
    stamp = (folder / "Test_red_box/00.png").stat().st_mtime_ns
    (folder / "Test_blue_box/01.png").unlink()
    build_furniture(folder, size=16, views=2, archives=[catalogue])
    assert {p: p.read_bytes() for p in folder.rglob("*.*") if p.is_file()} == before
    assert (folder / "Test_red_box/00.png").stat().st_mtime_ns == stamp


def test_fewer_views_leave_no_old_image(catalogue, tmp_path):
    build_furniture(tmp_path / "out", size=16, views=3, archives=[catalogue])
    build_furniture(tmp_path / "out", size=16, views=2, archives=[catalogue])
    assert len(list((tmp_path / "out").glob("*/*.png"))) == 8


def test_impossible_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Received: size=128, views=1"):
        build_furniture(tmp_path, views=1)


def test_missing_renderer_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "moderngl", None)
    with pytest.raises(RuntimeError, match=r"pip install \'\.\[test-data\]\'"):
        build_furniture(tmp_path)
    assert list(tmp_path.iterdir()) == []


PACKAGE = DebianPackage("tfdml-test", "1.0-1", hashlib.sha256(b"deb").hexdigest())


def test_package_that_is_unpacked_is_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "tfdml-test-1.0-1").mkdir()
    assert fetch_debian(PACKAGE, tmp_path) == tmp_path / "tfdml-test-1.0-1"


def test_system_without_apt_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchError, match=r"`apt-get` is not .*tfdml-test_1\.0-1_all"):
        fetch_debian(PACKAGE, tmp_path)


def tool(folder, name, script):
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_package_with_other_bytes_is_refused_and_deleted(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    tool(tmp_path, "apt-get", f"printf other > {PACKAGE.file_name}")
    with pytest.raises(FetchError, match=r"_all\.deb: the SHA-256 must be"):
        fetch_debian(PACKAGE, tmp_path / "packages")
    assert list((tmp_path / "packages").iterdir()) == []


def test_failure_of_apt_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    tool(tmp_path, "apt-get", "echo 'E: Version not found' >&2; exit 100")
    with pytest.raises(FetchError, match="`apt-get download` failed: E: Version not"):
        fetch_debian(PACKAGE, tmp_path / "packages")
