"""Which images of a folder become a gallery: all, or those of a list."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.search.gallery.choosing import choose_images, read_image_list
from tests.support.image_files import ENCODINGS, HOSTILE_NAMES, LINE_ENDS

EVERYTHING = {"skip_unreadable": False, "outside_links": True}


@pytest.fixture
def images(tmp_path):
    for path in ("red/clear.png", "red/pale.png"):
        (tmp_path / "images" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / path).touch()
    return tmp_path / "images"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("", "lists no image"),
        (
            "red/clear.png\n../secret.png",
            r"line 2: '\.\./secret\.png' must be a path bel",
        ),
        ("/etc/secret.png", "line 1.*must be a path below"),
        ("red/missing.png", "line 1.*is not a file"),
        ("red\\clear.png", r"is not a file.*Separate folders by /, not by \\\."),
        ("x" * 5000, "line 1.*is not a file"),
        ("# nothing but a comment", "lists no image"),
        ("red", "line 1.*is not a file"),
        ("red/clear.png\nred/pale.png\nred//clear.png", "line 3.*also in line 1"),
    ],
)
def test_a_wrong_line_in_the_list_is_named(images, tmp_path, lines, reason):
    only = tmp_path / "only.txt"
    only.write_text(lines)
    with pytest.raises(ValueError, match=reason) as raised:
        read_image_list(only, images)
    assert len(str(raised.value)) <= 500


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("end", LINE_ENDS)
@given(
    names=st.lists(
        st.sampled_from([n for n in HOSTILE_NAMES if "\n" not in n and "\r" not in n]),
        min_size=1,
        unique=True,
    ),
    spaces=st.sampled_from(["", " ", "\t", "  "]),
)
@settings(max_examples=6, deadline=None)
def test_list_is_read_as_editors_write_it(
    encoding, end, names, spaces, tmp_path_factory
):
    root = tmp_path_factory.mktemp("images")
    paths = [f"a b/{name}.png" for name in names]
    (root / "a b").mkdir()
    for path in paths:
        (root / path).touch()
    only = root / "only.txt"
    text = end.join(["# A comment", "", *(f"{path}{spaces}" for path in paths)]) + end
    only.write_bytes(ENCODINGS[encoding](text))
    assert read_image_list(only, root) == paths


def test_names_with_spaces_at_their_ends_are_taken_as_they_are(tmp_path):
    names = [" a.png", "a.png ", "a.png", "#1.png"]
    for name in names:
        (tmp_path / name).touch()
    only = tmp_path / "only.txt"
    only.write_text("\n".join(names))
    assert read_image_list(only, tmp_path) == names


def test_missing_files_of_a_list_are_left_to_a_reader_that_skips_them(images):
    (images / "nowhere.png").symlink_to("/nowhere/1.png")
    only = images / "only.txt"
    only.write_text("gone.png\nred/clear.png\nnowhere.png\n")
    paths = ["gone.png", "red/clear.png", "nowhere.png"]
    assert read_image_list(only, images, skip_unreadable=True) == paths
    only.write_text("../gone.png\n")
    with pytest.raises(ValueError, match="must be a path below"):
        read_image_list(only, images, skip_unreadable=True)


LAYOUTS = {
    "classes": (["cat/1.png", "dog/1.png"], None),
    "no classes": (["1.png", "2.png"], None),
    "a class with the name of a split": (["cat/1.png", "test/1.png"], None),
    "splits of classes": (
        ["train/cat/1.png", "train/dog/1.png", "val/cat/1.png"],
        "The classes are now train, val, which are the names of splits.",
    ),
    "splits in capitals": (["Train/1.png", "TEST/1.png"], "now TEST, Train, which"),
    "nested classes": (
        ["pets/cat/1.png", "pets/dog/1.png", "birds/1.png"],
        "Images in folders inside others: 2 of 3, such as 'pets/cat/1.png'.",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_of_other_tools_is_told(layout, tmp_path):
    paths, words = LAYOUTS[layout]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    found, notes = choose_images(tmp_path, None, **EVERYTHING)
    assert found == sorted(paths)
    assert len(notes) == (words is not None)
    for note in notes:
        assert words in note
        assert len(note) <= 500


def test_what_links_bring_from_outside_is_told_or_left_out(images, tmp_path):
    (tmp_path / "secret.png").touch()
    (images / "red" / "link.png").symlink_to(tmp_path / "secret.png")
    found, notes = choose_images(images, None, **EVERYTHING)
    assert "red/link.png" in found
    assert "Images outside the folder, behind links: 1 of 3" in notes[0]
    assert "--no-outside-links" in notes[1]
    found, notes = choose_images(
        images, None, skip_unreadable=False, outside_links=False
    )
    assert found == ["red/clear.png", "red/pale.png"]
    assert "Left out, as a link leads outside of the folder: 1 file," in notes[0]
