"""Shards of a gallery: what is merged is what one build makes, or is refused."""

import json
import re
import shutil

import numpy as np
import pytest

from serving.__main__ import main
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import embed_shard, index_images, merge_shards
from serving.search.gallery.shards import Part, read_shards
from tests.support.search_fixtures import (
    DIMENSION,
    PURE,
    SHADES,
    write_color_model,
    write_gallery_images,
    write_image,
)
from tfdml.images import UnreadableImageError
from tfdml.index import LocalIndex

EVERY = sorted(f"{name}/{shade}.png" for name in PURE for shade in SHADES)


@pytest.fixture
def model(colors):
    return colors / "models" / "colors"


@pytest.fixture
def images(tmp_path):
    return write_gallery_images(tmp_path / "images")


@pytest.fixture
def shards(images, model, tmp_path):
    """Shards 1/3, 2/3 and 3/3 of the nine images."""
    return embedded(images, tmp_path, model, 3)


def embedded(images, folder, model, count, **options):
    folders = [folder / f"shard-{number}" for number in range(1, count + 1)]
    for number, shard in enumerate(folders, start=1):
        embed_shard(images, shard, model, Part(number, count), **options)
    return folders


def assert_same_index(merged, whole):
    """Same rows in the same order, and the same answers to every row as a query."""
    (index, gallery), (expected_index, expected) = map(load_gallery, (merged, whole))
    assert gallery == expected
    ids = index.ids.tolist()
    assert index.get(ids).attributes == expected_index.get(ids).attributes
    assert index.ids.tolist() == expected_index.ids.tolist()
    assert index.model_fingerprint == expected_index.model_fingerprint
    queries = np.random.default_rng(0).uniform(size=(20, DIMENSION))
    found, wanted = index.search(queries, 3), expected_index.search(queries, 3)
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-6)
    assert found.ids.tolist() == wanted.ids.tolist()


# Parts of a list


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 11])
@pytest.mark.parametrize("length", [0, 1, 8, 9, 10])
def test_parts_hold_every_item_once_and_share_them_evenly(count, length):
    parts = [list(Part(n, count).positions(length)) for n in range(1, count + 1)]
    assert sorted(item for part in parts for item in part) == list(range(length))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_shard_two_of_eight_is_every_eighth_item_from_the_second_on():
    assert list(Part.parse("2/8").positions(20)) == [1, 9, 17]
    assert str(Part.parse("2/8")) == "2/8"


@pytest.mark.parametrize(
    "text", ["0/8", "9/8", "1/0", "0/0", "2", "2/", "-1/8", "a/b", "", "1/8/2", "²/8"]
)
def test_what_names_no_shard_is_refused(text):
    with pytest.raises(ValueError, match=r"A shard must be NUMBER/COUNT.*Received"):
        Part.parse(text)


# Merging


@pytest.mark.parametrize("count", [1, 2, 4, 12])
def test_merged_shards_are_the_index_that_one_build_makes(
    images, model, tmp_path, count
):
    index_images(images, tmp_path / "whole", model, batch_size=4)
    folders = embedded(images, tmp_path, model, count, batch_size=2)
    report = merge_shards(tmp_path / "merged", folders[::-1])  # in any order
    assert_same_index(tmp_path / "merged", tmp_path / "whole")
    assert report.images == 9
    assert "9 images of 3 classes indexed" in str(report)


def test_merged_embeddings_are_those_of_one_build(images, model, tmp_path, shards):
    merged = read_shards(shards)
    whole = read_shards(embedded(images, tmp_path / "one", model, 1))
    np.testing.assert_allclose(merged.embeddings, whole.embeddings, atol=1e-6)
    assert merged.embeddings.dtype == np.float32
    assert merged.paths == whole.paths == EVERY
    assert merged.job == whole.job
    assert merged.part == Part(1, 1)


def test_shards_of_a_list_keep_its_order(images, model, tmp_path):
    only = tmp_path / "only.txt"
    only.write_text("".join(f"{path}\n" for path in EVERY[4::-1]))
    folders = embedded(images, tmp_path, model, 2, only=only)
    merge_shards(tmp_path / "merged", folders)
    index_images(images, tmp_path / "whole", model, only=only)
    assert_same_index(tmp_path / "merged", tmp_path / "whole")
    assert load_gallery(tmp_path / "merged")[0].ids.tolist() == EVERY[4::-1]


def test_broken_images_left_out_of_shards_are_those_left_out_of_one_build(
    images, model, tmp_path
):
    for path in ("blue/broken.png", "green/a.png", "green/b.png", "red/z.png"):
        (images / path).touch()
    folders = embedded(images, tmp_path, model, 5, skip_unreadable=True)
    report = merge_shards(tmp_path / "merged", folders)
    whole = index_images(images, tmp_path / "whole", model, skip_unreadable=True)
    assert_same_index(tmp_path / "merged", tmp_path / "whole")
    assert report.skipped == whole.skipped
    assert len(report.skipped) == 4


def test_a_broken_image_ends_its_shard_alone(images, model, tmp_path):
    (images / "blue" / "broken.png").touch()  # the first of ten
    with pytest.raises(UnreadableImageError, match=r"broken\.png.*--skip-unreadable"):
        embed_shard(images, tmp_path / "first", model, Part(1, 2))
    assert not (tmp_path / "first").exists()
    report = embed_shard(images, tmp_path / "second", model, Part(2, 2))
    assert "Shard 2/2: 5 of the 10 images embedded." in str(report)


def test_images_that_can_none_of_them_be_read_make_no_index(model, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "broken.png").touch()
    options = {"skip_unreadable": True}
    folders = embedded(tmp_path / "images", tmp_path, model, 2, **options)
    with pytest.raises(ValueError, match=r"None of the 1 images.*broken\.png"):
        merge_shards(tmp_path / "merged", folders)
    assert not (tmp_path / "merged").exists()


# What is refused


def test_missing_shards_are_named_with_the_command_that_makes_one(shards, tmp_path):
    with pytest.raises(ValueError, match=r"2 of the 3 shards are missing: 1/3, 3/3"):
        merge_shards(tmp_path / "merged", [shards[1]])
    with pytest.raises(ValueError, match=r"missing: 2/3\..*build \.\.\. --shard 2/3"):
        merge_shards(tmp_path / "merged", [shards[2], shards[0]])
    with pytest.raises(ValueError, match="At least one shard"):
        merge_shards(tmp_path / "merged", [])
    assert not (tmp_path / "merged").exists()


def test_a_merge_is_finished_by_making_the_missing_shard(
    images, model, shards, tmp_path
):
    shutil.rmtree(shards[1])
    with pytest.raises(ValueError, match=r"shard-2 is not a shard.*is missing"):
        merge_shards(tmp_path / "merged", shards)
    embed_shard(images, shards[1], model, Part(2, 3))
    merge_shards(tmp_path / "merged", shards)
    index_images(images, tmp_path / "whole", model)
    assert_same_index(tmp_path / "merged", tmp_path / "whole")


def test_a_shard_given_twice_is_named(shards, tmp_path):
    copy = shutil.copytree(shards[1], tmp_path / "copy")
    with pytest.raises(
        ValueError, match=r"Shard 2/3 is given twice: .*shard-2 and .*c"
    ):
        merge_shards(tmp_path / "merged", [*shards, copy])


def test_a_shard_of_another_number_of_shards_is_refused(
    images, model, shards, tmp_path
):
    embed_shard(images, tmp_path / "half", model, Part(2, 2))
    with pytest.raises(
        ValueError, match=r"half is shard 2/2 and .*shard-1 is shard 1/"
    ):
        merge_shards(tmp_path / "merged", [shards[0], tmp_path / "half"])


def test_a_shard_of_another_model_is_refused(images, shards, tmp_path):
    write_color_model(tmp_path / "other" / "colors" / "1", tint=(1, 1, 0.5))
    embed_shard(images, shards[1], tmp_path / "other" / "colors", Part(2, 3))
    with pytest.raises(
        ValueError, match=r"shard-2 and .*shard-1 do not.*_fingerprint`"
    ):
        merge_shards(tmp_path / "merged", shards)


def test_a_shard_of_another_list_is_refused(images, model, shards, tmp_path):
    (images / "red" / "clear.png").rename(images / "red" / "new.png")
    embed_shard(images, shards[1], model, Part(2, 3))
    with pytest.raises(ValueError, match=r"shard-2 and .*do not belong.*`list_digest`"):
        merge_shards(tmp_path / "merged", shards)
    write_image(images / "red" / "tenth.png", (9, 9, 9))
    embed_shard(images, shards[1], model, Part(2, 3))
    with pytest.raises(ValueError, match=r"shard-2 and .*`images` is 10 and 9"):
        merge_shards(tmp_path / "merged", shards)


def test_a_shard_of_another_folder_is_refused(images, model, shards, tmp_path):
    copy = shutil.copytree(images, tmp_path / "elsewhere")
    embed_shard(copy, shards[1], model, Part(2, 3))
    with pytest.raises(ValueError, match=r"`root` is '.*elsewhere' and '.*images'"):
        merge_shards(tmp_path / "merged", shards)


@pytest.mark.parametrize("name", ["embeddings", "positions", "paths"])
def test_a_damaged_shard_is_refused(shards, tmp_path, name):
    (file,) = shards[1].glob(f"data-*/{name}.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"shard-2 is not a shard.*{name}.npy must"):
        merge_shards(tmp_path / "merged", shards)
    file.unlink()
    with pytest.raises(ValueError, match=f"shard-2 is not.*{name}.npy is missing"):
        merge_shards(tmp_path / "merged", shards)


def test_a_shard_with_a_damaged_description_is_refused(shards, tmp_path):
    manifest = shards[1] / "manifest.json"
    content = json.loads(manifest.read_text())
    content["part"]["number"] = 1
    manifest.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"shard-2 is not.*damaged.*its own SHA"):
        merge_shards(tmp_path / "merged", shards)


def test_an_index_is_no_shard_and_a_shard_no_index(images, model, shards, tmp_path):
    index_images(images, tmp_path / "whole", model)
    with pytest.raises(ValueError, match=r"is not a shard.*it holds a LocalIndex"):
        merge_shards(tmp_path / "merged", [shards[0], tmp_path / "whole"])
    with pytest.raises(ValueError, match="which holds a EmbeddingShard"):
        load_gallery(shards[0])


def test_a_folder_of_other_files_is_not_written_to(images, model, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ValueError, match="must be empty or hold"):
        embed_shard(images, tmp_path / "full", model, Part(1, 2))
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes.txt"]


def test_a_write_that_fails_leaves_the_shard_of_before(
    images, model, shards, tmp_path, monkeypatch
):
    before = read_shards(shards).embeddings

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match="No space left"):
            embed_shard(images, shards[1], model, Part(2, 3))
    np.testing.assert_array_equal(read_shards(shards).embeddings, before)


# Commands


def test_commands_embed_shards_and_merge_them(images, model, tmp_path, capsys):
    index, first, second = (str(tmp_path / name) for name in ("index", "a", "b"))
    command = ["index", "build", str(images), first, "--model", str(model)]
    assert main([*command, "--shard", "1/2"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"part +1/2\n", shown)
    assert re.search(r"embedded +5\nimages +9\n", shown)
    assert main(["index", "merge", index, first]) == 1
    assert "error: 1 of the 2 shards are missing: 2/2" in capsys.readouterr().err
    command[3] = second
    assert main([*command, "--shard", "3/2"]) == 1
    assert (
        "with a number from 1 to the count. Received: 3/2." in capsys.readouterr().err
    )
    assert main([*command, "--shard", "2/2"]) == 0
    assert main(["index", "merge", index, second, first]) == 0
    assert re.search(r"images +9\nclasses +3\n", capsys.readouterr().out)
    assert load_gallery(index)[0].ids.tolist() == EVERY


def test_shard_never_replaces_an_index_of_the_library(images, model, tmp_path):
    index = LocalIndex.build(np.eye(3, dtype="float32"), ids=["a", "b", "c"])
    index.save(tmp_path / "index")
    with pytest.raises(ValueError, match=r"`folder` must be empty or hold shard 1/2"):
        embed_shard(images, tmp_path / "index", model, Part(1, 2))
    assert LocalIndex.load(tmp_path / "index").ids.tolist() == ["a", "b", "c"]


def test_shard_never_replaces_another(images, model, tmp_path, shards):
    with pytest.raises(ValueError, match=r"holds shard 1/3\. Give each shard its own"):
        embed_shard(images, shards[0], model, Part(2, 3))
    assert read_shards(shards).paths == EVERY


@pytest.mark.parametrize("kind", ["files", "file"])
def test_wrong_folder_is_reported_before_anything_is_embedded(
    images, model, tmp_path, monkeypatch, kind
):
    folder = tmp_path / "mine"
    if kind == "file":
        folder.write_text("mine")
    else:
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
    monkeypatch.setattr("serving.search.gallery.indexing._embed", None)  # is not called
    with pytest.raises(ValueError, match=r"`folder`|mine"):
        embed_shard(images, folder, model, Part(1, 2))
