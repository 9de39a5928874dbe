"""The glyph set: what is drawn, what is left out, and builds that were stopped."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.data_sets.__main__ import main
from benchmarks.data_sets.debian import DebianPackage, fetch_debian
from benchmarks.data_sets.glyph_fonts import GLYPH_FONTS, GlyphFont
from benchmarks.data_sets.glyph_pen import GlyphPen
from benchmarks.data_sets.glyphs import build_glyphs
from tests.benchmarks.data_sets.test_furniture import tool
from tests.support.image_shapes import read_shape
from training.data.manifest import check_manifest, read_manifest

small_fonts = pytest.importorskip(
    "tests.support.small_fonts", reason="fontTools is not installed"
)
pattern, write_font = small_fonts.pattern, small_fonts.write_font

PACKAGE = DebianPackage("fonts-test", "2:1.0-1", "0" * 64)
# Evenly spread from the first character of the block to the last.
CHARACTERS = [chr(round(0x4E00 + i * (0x9FFF - 0x4E00) / 7)) for i in range(8)]
BOX = np.pad(np.zeros((2, 2), bool), 1, constant_values=True)


def fonts_in(folder, *fonts):
    """Put fonts where their package would be unpacked to."""
    package = folder / ".packages/fonts-test-1.0-1"
    text = package / "usr/share/doc/fonts-test/copyright"
    text.parent.mkdir(parents=True)
    text.write_text("Do as you like.")
    known = []
    for i, characters in enumerate(fonts):
        file = f"usr/share/fonts/truetype/test/font{i}.ttf"
        write_font(package / file, characters, missing=BOX)
        known.append(GlyphFont(f"font{i}", PACKAGE, file, "Free"))
    return known


def plain(number):
    """Return a font that draws all characters, none as another font does."""
    return {c: pattern([number, i]) for i, c in enumerate(CHARACTERS)}


def build(folder, known, **others):
    return build_glyphs(
        folder,
        **{"size": 32, "classes": 8, "min_drawings": 2, "known_fonts": known, **others},
    )


def images(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".packages" not in path.parts
    }


def name_of(character):
    return f"U+{ord(character):04X}"


def test_characters_are_drawn_listed_and_attributed(tmp_path):
    known = fonts_in(tmp_path, *(plain(n) for n in range(3)))
    data = build(tmp_path, known)
    assert len(data) == 8 * 3
    assert check_manifest(tmp_path / "manifest.csv") == []
    again = read_manifest(tmp_path / "manifest.csv")
    assert again.class_names == tuple(name_of(c) for c in CHARACTERS)
    assert again.class_names[0] == "U+4E00"
    assert again.class_names[-1] == "U+9FFF"
    counts = {s: len(again.of_split(s).class_names) for s in ("train", "test")}
    assert counts == {"train": 4, "test": 4}
    with Image.open(tmp_path / "U+4E00/font1.png") as image:
        assert (image.mode, image.size) == ("L", (32, 32))
    assert read_shape(again, 0) == (32, 32, 3)
    attribution = (tmp_path / "ATTRIBUTION.md").read_text("utf-8")
    assert "| font1 | 8 | Free | fonts-test 2:1.0-1 |" in attribution
    assert (tmp_path / "licenses/fonts-test.txt").read_text() == "Do as you like."


def test_ink_is_black_and_in_the_middle(tmp_path):
    squares = pattern(3)
    write_font(tmp_path / "a.ttf", {"一": squares})
    image = GlyphPen(tmp_path / "a.ttf", 50).draw("一")
    # 0.8 of 50 pixels an em, so 8 pixels a square, and 9 of margin on each side.
    expected = np.zeros((50, 50), bool)
    expected[9:41, 9:41] = squares.repeat(8, axis=0).repeat(8, axis=1)
    np.testing.assert_array_equal(image < 128, expected)
    assert image.max() == 255


def test_character_that_is_larger_than_the_image_is_shrunk(tmp_path):
    wide = np.ones((4, 8), bool)  # 1.6 em
    write_font(tmp_path / "a.ttf", {"一": wide})
    image = GlyphPen(tmp_path / "a.ttf", 40).draw("一")
    assert image.shape == (40, 40)
    rows, columns = np.nonzero(image < 128)
    # 40 by 20 pixels; hinting may move an edge by one.
    assert columns.min() <= 1
    assert columns.max() >= 38
    assert abs(rows.min() - 10) <= 1
    assert abs(rows.max() - 29) <= 1


def test_empty_missing_and_unmapped_characters_are_not_drawn(tmp_path):
    write_font(tmp_path / "a.ttf", {"一": None, "丁": BOX, "七": pattern(0)}, BOX)
    pen = GlyphPen(tmp_path / "a.ttf", 32)
    assert pen.draw("一") is None
    assert pen.draw("丁") is None  # mapped to an image like that of a missing one
    assert pen.draw("丈") is None
    assert pen.draw("七") is not None


def test_what_a_font_does_not_draw_is_not_in_the_set(tmp_path):
    lacking = plain(2)
    lacking[CHARACTERS[0]] = None
    lacking[CHARACTERS[1]] = BOX
    del lacking[CHARACTERS[2]]
    data = build(tmp_path, fonts_in(tmp_path, plain(0), plain(1), lacking))
    assert len(data) == 24 - 3
    for character in CHARACTERS[:3]:
        assert not (tmp_path / name_of(character) / "font2.png").exists()


def test_of_equal_images_in_a_class_the_first_is_kept(tmp_path):
    known = fonts_in(tmp_path, plain(0), plain(0), plain(1))
    data = build(tmp_path, known)
    assert {path.stem for path in data.images} == {"font0", "font2"}
    assert not list(tmp_path.glob("*/font1.png"))


def shared_fonts():
    """Return three fonts, of which one lacks characters and one draws two alike."""
    placeholder, few = plain(2), plain(3)
    for character in CHARACTERS[:2]:
        placeholder[character] = pattern([9, 9])
    for character in CHARACTERS[1:6]:
        del few[character]
    return plain(0), few, placeholder


def test_equal_images_in_two_classes_are_dropped_from_both(tmp_path):
    first, few, placeholder = shared_fonts()
    data = build(tmp_path, fonts_in(tmp_path, first, few, placeholder))
    # Character 1 has font 0 alone left: too few for a class.
    assert data.class_names == tuple(
        name_of(c) for i, c in enumerate(CHARACTERS) if i != 1
    )
    assert not (tmp_path / name_of(CHARACTERS[1])).exists()
    assert not (tmp_path / name_of(CHARACTERS[0]) / "font2.png").exists()
    assert (tmp_path / name_of(CHARACTERS[3]) / "font2.png").exists()
    assert check_manifest(tmp_path / "manifest.csv") == []


def test_too_few_classes_are_reported(tmp_path):
    one = {CHARACTERS[0]: pattern(0)}
    with pytest.raises(ValueError, match="Only 0 of 8 characters have 2 drawings"):
        build(tmp_path, fonts_in(tmp_path, plain(0), one, one))


def test_stopped_build_goes_on_and_gives_the_same_files(tmp_path):
    known = fonts_in(tmp_path, *shared_fonts())
    build(tmp_path, known)
    before = images(tmp_path)
    stamp = (tmp_path / "U+9FFF/font0.png").stat().st_mtime_ns
    for path in (tmp_path / "U+4E00").iterdir():
        path.unlink()
    (tmp_path / "U+4E00").rmdir()
    (tmp_path / "manifest.csv").unlink()
    build(tmp_path, known)
    assert images(tmp_path) == before
    assert (tmp_path / "U+9FFF/font0.png").stat().st_mtime_ns == stamp


def test_build_that_stops_while_it_deletes_gives_the_same_files(tmp_path, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    build(whole, fonts_in(whole, *shared_fonts()))
    known = fonts_in(stopped, *shared_fonts())
    unlink = Path.unlink

    def unlink_and_stop(path, **others):
        unlink(path, **others)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink_and_stop)
        with pytest.raises(KeyboardInterrupt):
            build(stopped, known)
    assert not (stopped / "manifest.csv").exists()
    build(stopped, known)
    assert images(stopped) == images(whole)


def test_fewer_fonts_and_other_sizes_need_another_folder(tmp_path):
    known = fonts_in(tmp_path, *(plain(n) for n in range(3)))
    data = build(tmp_path, known, fonts=2)
    assert {path.stem for path in data.images} == {"font0", "font1"}
    with pytest.raises(ValueError, match=r"other fonts: .*Build into another folder"):
        build(tmp_path, known)
    with pytest.raises(ValueError, match="other size: 32 instead of 48"):
        build(tmp_path, known, fonts=2, size=48)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": 8}, "Received: size=8"),
        ({"classes": 3}, "classes=3"),
        ({"min_drawings": 1}, "min_drawings=1"),
        ({"fonts": 4}, r"`fonts` must be 5 .* to 36\. Received: 4"),
        ({"fonts": 37}, "Received: 37"),
    ],
)
def test_impossible_numbers_are_refused(tmp_path, arguments, words):
    with pytest.raises(ValueError, match=words):
        build_glyphs(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_command_names_the_argument(tmp_path, capsys):
    assert main(["glyphs", str(tmp_path / "out"), "--fonts", "2"]) == 1
    assert "`fonts` must be 5" in capsys.readouterr().err


def test_each_font_has_a_name_a_pinned_package_and_a_license():
    assert len({font.name for font in GLYPH_FONTS}) == len(GLYPH_FONTS) == 36
    assert len({font.package for font in GLYPH_FONTS}) == 28
    for font in GLYPH_FONTS:
        assert re.fullmatch("[0-9a-f]{64}", font.package.sha256)
        assert font.license
        assert Path(font.file).suffix in (".ttf", ".ttc", ".otf")


def test_package_with_an_epoch_has_the_file_name_that_apt_gives(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert PACKAGE.file_name == "fonts-test_2%3a1.0-1_all.deb"
    assert PACKAGE.folder_name == "fonts-test-1.0-1"
    tool(tmp_path, "apt-get", 'echo "$*" > request; printf x > ' + PACKAGE.file_name)
    with pytest.raises(RuntimeError, match="the SHA-256 must be 000"):
        fetch_debian(PACKAGE, tmp_path / "packages")
    request = (tmp_path / "packages/request").read_text()
    assert request == "download --quiet fonts-test=2:1.0-1\n"
