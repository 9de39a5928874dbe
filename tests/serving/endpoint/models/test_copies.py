"""Versions in the cloud are copied whole, or not at all."""

import logging

import pytest

from serving.endpoint.models.config import (
    AllVersions,
    LatestVersions,
    SpecificVersions,
)
from serving.endpoint.models.copies import ModelCopies
from tests.support.cloud import GRAPH, INDEX, MODEL, SHARD, Cloud

LATEST = LatestVersions()


@pytest.fixture
def cloud():
    return Cloud()


def copies_of(cloud, tmp_path, check=lambda folder: None):
    return ModelCopies(cloud, tmp_path / "copies", check)


def content_of(folder):
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def brought(copies, policy=LATEST, looks=2):
    """Look several times, then return what is there."""
    for _ in range(looks):
        copies.look(policy)
    copies.take_over()
    return copies.versions()


def test_a_version_is_copied_when_it_has_settled(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)
    assert brought(copies, looks=1) == set()
    assert brought(copies, looks=1) == {1}
    assert content_of(copies.folder / "1") == MODEL
    assert sorted(cloud.copied) == sorted(f"1/{name}" for name in MODEL)
    # Once is enough.
    assert brought(copies) == {1}
    assert len(cloud.copied) == len(MODEL)


def test_at_the_start_nobody_waits(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)
    copies.look(LATEST, at_once=True)
    assert copies.versions() == set()  # nothing moves under who reads there
    copies.take_over()
    assert copies.versions() == {1}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (LatestVersions(), {12}),
        (LatestVersions(2), {3, 12}),
        (AllVersions(), {1, 3, 12}),
        (SpecificVersions(frozenset([1, 7])), {1}),
    ],
)
def test_what_the_policy_wants_is_copied(cloud, tmp_path, policy, expected):
    for version in (1, 3, 12):
        cloud.upload(version)
    for path in ("readme.txt", "07/x", "new/y", "9" * 30 + "/z"):
        cloud.content[path] = b""
    assert brought(copies_of(cloud, tmp_path), policy) == expected


@pytest.mark.parametrize(
    "missing", [[GRAPH], [INDEX], [SHARD], [INDEX, SHARD], [GRAPH, INDEX]]
)
def test_a_version_that_is_still_uploaded_is_left_alone(cloud, tmp_path, missing):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)
    assert brought(copies) == {1}
    whole = dict(MODEL)
    cloud.upload(2, {name: whole[name] for name in whole if name not in missing})
    assert brought(copies, looks=9) == {1}
    cloud.upload(2)
    assert brought(copies) == {1, 2}
    assert content_of(copies.folder / "2") == MODEL


def test_all_files_of_variables_must_be_there(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    names = [f"variables/variables.data-{i:05d}-of-00003" for i in range(3)]
    cloud.upload(1, {GRAPH: b"g", INDEX: b"i", names[0]: b"0", names[2]: b"2"})
    assert brought(copies, looks=5) == set()
    cloud.upload(1, {names[1]: b"1"})
    assert brought(copies) == {1}


def test_what_changes_while_it_is_copied_is_not_taken(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)

    def replace(path):
        # Of the same length; the last file is the one that has been read before.
        cloud.content[f"1/{GRAPH}"] = b"other"
        cloud.content["1/assets/late.txt"] = b"late"

    cloud.on_copy = replace
    assert brought(copies) == set()
    cloud.on_copy = lambda path: None
    assert brought(copies) == {1}
    expected = {**MODEL, GRAPH: b"other", "assets/late.txt": b"late"}
    assert content_of(copies.folder / "1") == expected


def test_what_does_not_belong_together_waits_for_a_change(cloud, tmp_path, caplog):
    def check(folder):
        if (folder / GRAPH).read_bytes() != b"graph":
            raise ValueError("its graph is another.")

    copies = copies_of(cloud, tmp_path, check)
    cloud.upload(1)
    cloud.upload(2, {**MODEL, GRAPH: b"wrong"})
    with caplog.at_level(logging.WARNING):
        assert brought(copies, looks=5) == {1}
    assert len(caplog.records) == 1
    assert "Version 2 of s3://cloud is not taken over" in caplog.text
    assert "its graph is another." in caplog.text
    assert cloud.copied.count(f"2/{GRAPH}") == 1
    cloud.upload(2)
    assert brought(copies) == {1, 2}


def test_a_cloud_that_refuses_changes_nothing(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)
    assert brought(copies) == {1}
    cloud.refuses = True
    for _ in range(2):
        with pytest.raises(PermissionError):
            copies.look(LATEST)
        copies.take_over()
    assert content_of(copies.folder / "1") == MODEL


def test_a_version_that_breaks_off_is_copied_at_the_next_look(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)
    copies.look(LATEST)

    def refuse(path):
        raise OSError("The connection broke.")

    cloud.on_copy = refuse
    with pytest.raises(OSError, match="broke"):
        copies.look(LATEST)
    copies.take_over()
    assert copies.versions() == set()
    cloud.on_copy = lambda path: None
    assert brought(copies, looks=1) == {1}


def test_a_stop_ends_a_copy_after_the_file_that_is_copied(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)
    cloud.on_copy = lambda path: copies.stop()
    assert brought(copies, looks=3) == set()
    assert len(cloud.copied) == 1


def test_a_version_goes_with_that_in_the_cloud_but_never_all(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    for version in (1, 2):
        cloud.upload(version)
    assert brought(copies, AllVersions()) == {1, 2}
    cloud.remove(2)
    assert brought(copies) == {1}
    cloud.remove(1)
    assert brought(copies) == {1}


def test_a_changed_version_replaces_its_copy(cloud, tmp_path):
    copies = copies_of(cloud, tmp_path)
    cloud.upload(1)
    assert brought(copies) == {1}
    cloud.upload(1, {SHARD: b"more weights"})
    copies.look(LATEST)
    copies.look(LATEST)
    assert content_of(copies.folder / "1") == MODEL
    copies.take_over()
    assert content_of(copies.folder / "1") == {**MODEL, SHARD: b"more weights"}


def test_another_process_takes_the_copies_up_again(cloud, tmp_path):
    cloud.upload(1)
    first = copies_of(cloud, tmp_path)
    assert brought(first) == {1}
    # It was killed while it copied another one, and while it replaced one.
    (first.folder / "new" / "2").mkdir(parents=True)
    (first.folder / "old").mkdir()
    second = copies_of(cloud, tmp_path)
    assert second.versions() == {1}
    cloud.copied.clear()
    assert brought(second) == {1}
    assert cloud.copied == []
    # Whose stamp was not written yet.
    (second.folder / "1.stamp").unlink()
    assert brought(copies_of(cloud, tmp_path)) == {1}
    assert len(cloud.copied) == len(MODEL)


def test_no_file_is_written_outside_of_the_copies(cloud, tmp_path):
    cloud.upload(1, {**MODEL, "../../../outside.txt": b"x"})
    assert brought(copies_of(cloud, tmp_path)) == set()
    assert not list(tmp_path.rglob("outside.txt"))
