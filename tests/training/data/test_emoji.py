"""The emoji set: fetched packages, matched names, drawn files."""

import base64
import csv
import errno
import hashlib
import io
import json
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tfdml.images import read_image
from training.data.emoji import build
from training.data.emoji.build import build_emoji
from training.data.emoji.npm import NpmPackage, fetch, read_members
from training.data.emoji.sets import EMOJI_SETS, EmojiSet


def square(color):
    return {"body": f'<rect width="16" height="16" fill="{color}"/>'}


def tarball(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def collection(icons, chars, aliases=None):
    about = {"icons": icons, "aliases": aliases or {}, "width": 16, "height": 16}
    return {
        "icons.json": json.dumps(about).encode(),
        "chars.json": json.dumps(chars).encode(),
        "metadata.json": json.dumps({"categories": {"Nature": ["dog-face"]}}).encode(),
    }


DOG, CAT, FLAG = "1f436", "1f431", "1f1e6-1f1e8"
CHARS = {DOG: "dog-face", CAT: "cat-face", FLAG: "flag", "1f44b-1f3fb": "wave-light"}
ICONS = {
    "dog-face": square("red"),
    "cat-face": square("lime"),
    "flag": square("blue"),
    "wave-light": square("gray"),
}
WEBP = io.BytesIO()
Image.new("RGB", (20, 20), "teal").save(WEBP, "WEBP", lossless=True)
SETS = {
    "noto": collection(ICONS, CHARS),
    "twemoji": collection({**ICONS, "dog-face": square("navy")}, CHARS),
    "fluent-emoji-flat": collection({"dog-face": square("pink")}, {DOG: "dog-face"}),
    # Without a table of code points: Unicode's name, run together, and an alias.
    "fxemoji": collection({"dogface": square("black")}, {}),
    "emojione": collection(
        {"hound": square("orange")}, {}, {"dog-face": {"parent": "hound"}}
    ),
    "fluent-emoji-3d": {"assets/1f436-fe0f.webp": WEBP.getvalue()},
}


@pytest.fixture
def sets(tmp_path):
    """Put packages where npm would put them, and return the sets."""
    folder = tmp_path / "emoji" / ".packages"
    folder.mkdir(parents=True)
    made = []
    for name, files in SETS.items():
        data = tarball(files)
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        package = NpmPackage(f"@test/{name}", "1.0.0", digest)
        (folder / package.tarball_name).write_bytes(data)
        made.append(EmojiSet(package, name, name, "MIT", f"{name} & co", "https://x"))
    return tuple(made)


def test_drawings_of_one_emoji_are_matched_by_code_name_and_alias(sets, tmp_path):
    folder = tmp_path / "emoji"
    assert build_emoji(folder, size=32, min_drawings=2, sets=sets) == 6
    drawn = {p.stem: read_image(p) for p in folder.glob("1f436_dog-face/*.png")}
    colors = {name: tuple(image[16, 16]) for name, image in drawn.items()}
    assert colors == {
        "noto": (255, 0, 0),
        "twemoji": (0, 0, 128),
        "fluent-emoji-flat": (255, 192, 203),
        "fxemoji": (0, 0, 0),
        "emojione": (255, 165, 0),
        "fluent-emoji-3d": (0, 128, 128),
    }
    assert all(image.shape == (32, 32, 3) for image in drawn.values())
    rows = list(
        csv.DictReader(io.StringIO((folder / "manifest.csv").read_text("utf-8")))
    )
    assert {row["class"] for row in rows} == {"1f436_dog-face"}
    assert {row["category"] for row in rows} == {"Nature"}
    attribution = (folder / "ATTRIBUTION.md").read_text("utf-8")
    assert all(f"{name} & co" in attribution for name in SETS)


def test_flags_skin_tones_and_images_of_two_classes_are_left_out(sets, tmp_path):
    folder = tmp_path / "emoji"
    build_emoji(folder, size=32, min_drawings=1, sets=sets)
    # The two cats are one image, so one of them is left; nothing else is.
    assert sorted(p.name for p in folder.glob("1*")) == [
        "1f431_cat-face",
        "1f436_dog-face",
    ]
    assert len(list(folder.glob("1f431_cat-face/*"))) == 1
    build_emoji(folder, size=32, min_drawings=2, sets=sets)
    assert [p.name for p in folder.glob("1*")] == ["1f436_dog-face"]


def test_stopped_build_goes_on_and_gives_the_same_files(sets, tmp_path):
    folder = tmp_path / "emoji"
    build_emoji(folder, size=32, min_drawings=2, sets=sets)
    before = {p: p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}
    kept = folder / "1f436_dog-face/noto.png"
    stamp = kept.stat().st_mtime_ns
    (folder / "1f436_dog-face/twemoji.png").unlink()
    build_emoji(folder, size=32, min_drawings=2, sets=sets)
    assert {p: p.read_bytes() for p in before} == before
    assert kept.stat().st_mtime_ns == stamp  # not drawn again


def test_build_that_meets_a_full_disk_goes_on_when_there_is_room(
    sets, tmp_path, monkeypatch
):
    folder = tmp_path / "emoji"
    encode, drawn = build.encode_png, []

    def fail_at_the_third(image):
        drawn.append(image)
        if len(drawn) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return encode(image)

    with monkeypatch.context() as patched:
        # A patch reaches the threads of this process, but not every new process.
        patched.setattr(build, "ProcessPoolExecutor", ThreadPoolExecutor)
        patched.setattr(build, "encode_png", fail_at_the_third)
        with pytest.raises(OSError, match=rf"No space left .*{folder.name}.*\.png"):
            build_emoji(folder, size=32, min_drawings=2, sets=sets)
    assert not list(folder.glob("*/*.unfinished"))
    assert not (folder / "manifest.csv").exists()
    assert build_emoji(folder, size=32, min_drawings=2, sets=sets) == 6


def test_images_of_another_size_are_drawn_again(sets, tmp_path):
    folder = tmp_path / "emoji"
    build_emoji(folder, size=32, min_drawings=2, sets=sets)
    build_emoji(folder, size=24, min_drawings=2, sets=sets)
    shapes = {read_image(path).shape for path in folder.glob("1*/*.png")}
    assert shapes == {(24, 24, 3)}


def test_other_file_in_a_class_that_is_left_out_is_no_hindrance(sets, tmp_path):
    other = tmp_path / "emoji/1f431_cat-face/Thumbs.db"
    other.parent.mkdir()
    other.touch()
    assert build_emoji(tmp_path / "emoji", size=32, min_drawings=2, sets=sets) == 6


def test_sets_are_pinned_to_exact_packages():
    for emoji_set in EMOJI_SETS:
        assert len(base64.b64decode(emoji_set.package.sha512)) == 64
        assert emoji_set.license in (
            "Apache-2.0",
            "MIT",
            "CC-BY-4.0",
        )  # none share-alike


def test_impossible_sizes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"at least 1\. Received: size=0"):
        build_emoji(tmp_path, size=0)


@pytest.mark.full
def test_real_packages_give_over_a_thousand_classes(tmp_path):
    count = build_emoji(tmp_path, size=16)
    classes = [p for p in tmp_path.iterdir() if p.is_dir() and p.name[0] != "."]
    assert (count, len(classes)) == (7502, 1092)
    assert min(len(list(p.iterdir())) for p in classes) == 5
    members = read_members(fetch(EMOJI_SETS[0].package, tmp_path / ".packages"))
    assert "icons.json" in members
    assert np.array(Image.open(classes[0] / "noto.png")).shape == (16, 16, 3)
