"""That a gallery gets another model while it serves, whole, and can go back."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from serving.client import EndpointError
from serving.search.gallery import upgrade_blocks, upgrading
from serving.search.gallery.changing import add_images, remove_images
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import index_images
from serving.search.gallery.opening import open_search
from serving.search.gallery.pair import kept_pair, pair_in
from serving.search.gallery.shards import Part
from serving.search.gallery.upgrade_blocks import Pace, Pacing
from serving.search.gallery.upgrade_folder import (
    at_work,
    pause_wanted,
    staged_folder,
    upgrade_folder,
)
from serving.search.gallery.upgrade_switch import (
    changing_alone,
    delete_kept,
    roll_back,
)
from serving.search.gallery.upgrading import (
    cancel,
    embed_upgrade_shard,
    status,
    upgrade,
)
from tests.support.clock import Clock
from tests.support.search_fixtures import (
    write_color_model,
    write_gallery_images,
    write_image,
)
from tests.support.swapping import swapping
from tfdml.images import UnreadableImageError
from tfdml.index import LockedError
from tfdml.versioned_folder import IndexFileError

# The second model weights the channels otherwise.
TINT = (0.5, 1, 2)
QUIET = Pacing(batch_size=2, progress=False)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "colors"
    write_color_model(folder / "1")
    write_color_model(folder / "2", tint=TINT)
    write_color_model(folder / "3", tint=(3, 1, 1))
    return folder


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(upgrade_blocks, "BLOCK", 2)
    monkeypatch.setattr(upgrading, "BLOCK", 2)


@pytest.fixture
def index(tmp_path, models):
    """An index of nine images, with attributes, by the first model."""
    images = write_gallery_images(tmp_path / "images")
    index_images(images, tmp_path / "index", models / "1", progress=False)
    return tmp_path / "index"


def built(index, models, version, tmp_path):
    """What a build by a version holds: embeddings and attributes by id."""
    other = tmp_path / f"built-{version}"
    images = index.parent / "images"
    index_images(images, other, models / str(version), progress=False)
    return content(other)


def content(folder):
    index, _ = load_gallery(folder)
    with index:
        ids = sorted(index.ids.tolist())
        found = index.get(ids)
        return ids, found.embeddings, found.attributes


def same(one, other):
    assert one[0] == other[0]
    np.testing.assert_allclose(one[1], other[1], atol=1e-6)
    assert one[2] == other[2]


def test_upgrade_equals_a_new_build_and_keeps_the_old_pair(index, models, tmp_path):
    old = content(index)
    before = pair_in(index)
    report = upgrade(index, models / "2", pacing=QUIET)
    assert (report.before, report.after) == (before, pair_in(index))
    assert (report.images, report.skipped, report.is_switched) == (9, (), True)
    assert report.by_items.queries == 9
    assert 0 <= report.by_items.agreement <= 1
    assert report.by_items.precision_before == 1
    assert report.by_items.recall == 1
    same(content(index), built(index, models, 2, tmp_path))
    assert kept_pair(index) == before
    assert not upgrade_folder(index).exists()
    back = roll_back(index)
    assert (back.after, back.missing) == (before, ())
    same(content(index), old)
    assert roll_back(index).after.version == 2
    assert delete_kept(index) == before
    assert kept_pair(index) is None
    with pytest.raises(FileNotFoundError, match="none is kept"):
        roll_back(index)


def test_shards_do_the_work_of_one_process(index, models, tmp_path, monkeypatch):
    counts = [
        embed_upgrade_shard(index, models / "2", Part(number, 2), pacing=QUIET)
        for number in (2, 1, 1)
    ]
    assert counts == [4, 5, 0]
    assert status(index).blocks == (5, 5)
    assert status(index).next.version == 2
    killed_at(monkeypatch, 0)  # nothing is left to embed
    upgrade(index, models / "2", pacing=QUIET)
    same(content(index), built(index, models, 2, tmp_path))


def killed_at(monkeypatch, step):
    """Kill the process in place of its write number `step`."""
    count = 0
    real = upgrade_blocks.BlockWriter.write

    def write(writer, name, ids):
        nonlocal count
        count += 1
        if count > step:
            raise Killed
        real(writer, name, ids)

    monkeypatch.setattr(upgrade_blocks.BlockWriter, "write", write)


def test_killed_upgrade_goes_on_where_it_was(index, models, tmp_path, monkeypatch):
    old = content(index)
    with monkeypatch.context() as patched:
        killed_at(patched, 3)
        with pytest.raises(Killed):
            upgrade(index, models / "2", pacing=QUIET)
    same(content(index), old)
    assert status(index).blocks == (3, 5)
    with monkeypatch.context() as patched:
        killed_at(patched, 2)  # as many as are left
        upgrade(index, models / "2", pacing=QUIET)
    same(content(index), built(index, models, 2, tmp_path))


@pytest.mark.parametrize("place", ["stage", "compare_by_items", "switch_to_staged"])
def test_upgrade_killed_after_the_embedding_embeds_nothing_again(
    index, models, tmp_path, monkeypatch, place
):
    def kill(*arguments, **named):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(upgrading, place, kill)
        with pytest.raises(Killed):
            upgrade(index, models / "2", pacing=QUIET)
    assert pair_in(index).version == 1
    with monkeypatch.context() as patched:
        killed_at(patched, 0)
        upgrade(index, models / "2", pacing=QUIET)
    same(content(index), built(index, models, 2, tmp_path))


def test_upgrade_killed_after_the_switch_is_over(index, models, monkeypatch):
    def kill(*arguments):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(upgrading, "remove_upgrade", kill)
        with pytest.raises(Killed):
            upgrade(index, models / "2", pacing=QUIET)
    assert pair_in(index).version == 2
    with pytest.raises(ValueError, match="nothing to upgrade"):
        upgrade(index, models / "2", pacing=QUIET)
    assert not upgrade_folder(index).exists()
    upgrade(index, models / "3", pacing=QUIET)
    assert pair_in(index).version == 3


def test_changes_during_the_upgrade_are_in_the_new_index(index, models, tmp_path):
    upgrade(index, models / "2", pacing=QUIET, switch=False)
    assert pair_in(index).version == 1
    assert status(index).is_staged
    images = index.parent / "images"
    write_image(images / "red" / "late.png", (200, 30, 30))
    # Another image under the same id.
    remove_images(index, ["green/pale.png", "blue/pale.png"])
    (images / "blue" / "pale.png").unlink()
    write_image(images / "green" / "pale.png", (30, 250, 90))
    add_images(index, images, model=models / "1", skip_existing=True, progress=False)
    with load_gallery(index)[0] as old:
        old.update(["red/clear.png"], attributes={"price": [3]})
    upgrade(index, models / "2", pacing=QUIET)
    ids, rows, attributes = content(index)
    expected = built(index, models, 2, tmp_path)
    np.testing.assert_allclose(rows, expected[1], atol=1e-6)
    assert ids == expected[0]
    assert attributes[ids.index("red/clear.png")] == {"class": "red", "price": 3}


def test_changes_between_the_measuring_and_the_switch_are_not_lost(
    index, models, tmp_path, monkeypatch
):
    images = index.parent / "images"
    real = upgrading.switch_to_staged

    def changed(*arguments):
        write_image(images / "red" / "late.png", (200, 30, 30))
        remove_images(index, ["blue/pale.png"])
        (images / "blue" / "pale.png").unlink()
        add_images(
            index, images, model=models / "1", skip_existing=True, progress=False
        )
        with load_gallery(index)[0] as old:
            old.update(["red/clear.png"], attributes={"class": ["rot"], "price": [3]})
        return real(*arguments)

    monkeypatch.setattr(upgrading, "switch_to_staged", changed)
    assert upgrade(index, models / "2", pacing=QUIET).images == 9
    ids, rows, attributes = content(index)
    expected = built(index, models, 2, tmp_path)
    np.testing.assert_allclose(rows, expected[1], atol=1e-6)
    assert ids == expected[0]
    assert attributes[ids.index("red/clear.png")] == {"class": "rot", "price": 3}


def test_images_added_since_are_named_on_the_way_back(index, models):
    upgrade(index, models / "2", pacing=QUIET)
    other = index.parent / "other"
    write_image(other / "red" / "new.png", (90, 8, 8))
    add_images(index, other, model=models / "2", progress=False)
    assert roll_back(index).missing == ("red/new.png",)
    roll_back(index)
    new, _ = load_gallery(index)
    with new:
        name = new.get(["red/new.png"]).attributes[0]["picture"]
    assert (index / "pictures" / name).is_file()


def test_vanished_image_is_named_and_can_be_left_out(index, models):
    (index.parent / "images" / "green" / "pale.png").unlink()
    with pytest.raises(UnreadableImageError, match=r"green.pale\.png.*--skip-unread"):
        upgrade(index, models / "2", pacing=QUIET)
    assert pair_in(index).version == 1
    pacing = Pacing(skip_unreadable=True, progress=False)
    report = upgrade(index, models / "2", pacing=pacing, largest_loss=1)
    assert (report.images, len(report.skipped)) == (8, 1)
    assert "green" in report.skipped[0]
    assert roll_back(index).after.version == 1
    assert len(content(index)[0]) == 9


def test_second_process_is_told_who_is_at_work(index, models):
    with (
        at_work(index, "lock", "upgrading the index"),
        pytest.raises(
            LockedError, match=r"The process \d+ on .* is at work: upgrading"
        ),
    ):
        upgrade(index, models / "2", pacing=QUIET)
    with (
        at_work(index, "shard-1-of-2.lock", "embedding the shard 1/2 of an upgrade"),
        pytest.raises(LockedError, match="embedding the shard 1/2"),
    ):
        upgrade(index, models / "2", pacing=QUIET)
    upgrade(index, models / "2", pacing=QUIET)


def test_other_upgrade_is_refused_until_the_first_is_ended(index, models):
    upgrade(index, models / "2", pacing=QUIET, switch=False)
    with pytest.raises(ValueError, match=r"being upgraded to version 2 .*--cancel"):
        upgrade(index, models / "3", pacing=QUIET)
    assert cancel(index)
    assert not cancel(index)
    assert not upgrade_folder(index).exists()
    upgrade(index, models / "3", pacing=QUIET)


@pytest.mark.slow
def test_endpoint_that_does_not_serve_the_model_stops_the_switch(index, models):
    with swapping(models / "1") as endpoint:
        url = endpoint.urls["REST"]
        with pytest.raises(EndpointError):
            upgrade(index, models / "2", pacing=QUIET, endpoint=url)
        assert pair_in(index).version == 1
        endpoint.add(models / "2")
        with open_search(staged_folder(index), url) as beside:  # `page --compare`
            assert beside.pair.version == 2
        assert upgrade(index, models / "2", pacing=QUIET, endpoint=url).is_switched
        with open_search(index, url) as search:
            assert search.pair.version == 2


def test_loss_of_precision_stops_the_switch(index, models, monkeypatch):
    real = upgrading.compare_by_items

    def worse(old, new):
        return replace(real(old, new), precision_after=0.9)

    monkeypatch.setattr(upgrading, "compare_by_items", worse)
    report = upgrade(index, models / "2", pacing=QUIET)
    assert not report.is_switched
    assert "Precision@1 falls by 0.1000, more than 0.02" in report.why_not
    assert pair_in(index).version == 1
    assert upgrade(index, models / "2", pacing=QUIET, largest_loss=0.2).is_switched


def test_given_images_are_measured_by_both_models(index, models):
    queries = index.parent / "queries"
    write_image(queries / "red" / "a.png", (240, 20, 20))
    write_image(queries / "blue" / "b.png", (20, 20, 240))
    report = upgrade(index, models / "2", pacing=QUIET, queries=queries)
    found = report.by_images
    assert (found.queries, found.precision_before, found.precision_after) == (2, 1, 1)


def refusals(models, tmp_path):
    other = tmp_path / "hues" / "2"
    shutil.copytree(models / "2", other)
    same_version = tmp_path / "colors" / "1"
    shutil.copytree(models / "2", same_version)
    return [
        (models / "1", "nothing to upgrade"),
        (other, "must be another version of the model 'colors'"),
        (same_version, "must be another version .* colors/2"),
        (tmp_path / "none", "must hold an exported model"),
    ]


def test_models_that_cannot_take_the_place_are_refused(index, models, tmp_path):
    for model, reason in refusals(models, tmp_path):
        with pytest.raises((ValueError, FileNotFoundError), match=reason):
            upgrade(index, model, pacing=QUIET)
        assert not upgrade_folder(index).exists()


def test_model_of_another_metric_is_refused(index, models, monkeypatch):
    monkeypatch.setattr(
        "tfdml.export._saved_embedder._metric_of", lambda folder: "squared_euclidean"
    )
    with pytest.raises(ValueError, match="must compare embeddings by cosine"):
        upgrade(index, models / "2", pacing=QUIET)
    assert pair_in(index).version == 1


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: Pacing(batch_size=0), "`batch_size` must be at least 1"),
        (lambda: Pacing(max_pixels=0), "`max_pixels` must be at least 1"),
        (lambda: Pace(0), "`images_per_second` must be above 0"),
        (lambda: upgrade("x", "y", largest_loss=2), "`largest_loss` must be from 0"),
    ],
)
def test_bad_options_are_refused(call, reason):
    with pytest.raises(ValueError, match=reason):
        call()


def test_folder_without_an_index_is_refused(tmp_path, models):
    for call in (lambda: upgrade(tmp_path, models), lambda: cancel(tmp_path)):
        with pytest.raises(IndexFileError, match="holds no index"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_pace_waits_for_as_long_as_the_images_take():
    clock, waited = Clock(), []

    def sleep(seconds):
        waited.append(seconds)
        clock.now += seconds

    pace = Pace(10, clock=clock, sleep=sleep)
    pace.wait(5)
    assert waited == []
    clock.now += 0.2
    pace.wait(5)
    assert waited == [pytest.approx(0.3)]
    clock.now += 100  # a time without work is not made up for
    pace.wait(5)
    pace.wait(5)
    assert waited[1:] == [pytest.approx(0.5)]


def test_switch_gives_up_where_another_process_goes_on_changing(index):
    clock = Clock()

    def sleep(seconds):
        clock.now += seconds

    with load_gallery(index)[0] as writer:
        writer.remove([])
        with (
            pytest.raises(LockedError, match="Nothing was switched"),
            changing_alone(index, clock=clock, sleep=sleep),
        ):
            pass
    with changing_alone(index):
        pass
    with pause_wanted(index):
        pass
    assert not upgrade_folder(index).exists()
