"""That the page follows its folder to another pair of model and index, whole."""

import contextlib
import time

import pytest

from serving.search.app.following import PairFollower
from serving.search.gallery.editing import GalleryEditor
from serving.search.gallery.indexing import index_images
from serving.search.gallery.opening import open_search
from serving.search.gallery.pair import kept_pair, pair_in
from serving.search.gallery.upgrade_blocks import Pacing
from serving.search.gallery.upgrade_folder import pause_wanted, staged_folder
from serving.search.gallery.upgrading import cancel, upgrade
from tests.support.search_fixtures import (
    encoded,
    error_of,
    page_of,
    post,
    write_color_model,
    write_gallery_images,
)
from tests.support.swapping import swapping
from tfdml.versioned_folder import held

# The second model sees less red and more blue than the first one.
TINT = (0.9, 1, 1.1)
IMAGE = encoded((250, 60, 60))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "colors"
    write_color_model(folder / "1")
    write_color_model(folder / "2", tint=TINT)
    write_color_model(folder / "3", tint=(-1, -1, -1))
    return folder


@pytest.fixture
def index(tmp_path, models):
    """An index of the first model, and one of the second to switch to."""
    images = write_gallery_images(tmp_path / "images")
    index_images(images, tmp_path / "index", models / "1", progress=False)
    staged = staged_folder(tmp_path / "index")
    index_images(images, staged, models / "2", progress=False)
    return tmp_path / "index"


def switch(index):
    with held(index) as folder:
        folder.switch(staged_folder(index))


def swap(index):
    with held(index) as folder:
        folder.swap()


@contextlib.contextmanager
def both_versions(models):
    with swapping(models / "1") as endpoint:
        endpoint.add(models / "2")
        yield endpoint


@contextlib.contextmanager
def following(index, url):
    """A follower that a test moves, and what it uses."""
    used = []
    with open_search(index, url) as search:
        follower = PairFollower(search, lambda: open_search(index, url), used.append)
        try:
            yield search, follower, used
        finally:
            follower.close_search()


def wait_for(page, version):
    """Wait until the page searches with a version of the model."""
    deadline = time.monotonic() + 120
    while page.get("/api/info").json()["indexes"][0]["model"]["version"] != version:
        assert time.monotonic() < deadline, f"version {version} was never searched"
        time.sleep(0.05)


def test_pair_is_what_the_folder_names(index, models):
    first = pair_in(index)
    assert (first.name, first.version) == ("colors", 1)
    assert kept_pair(index) is None
    switch(index)
    assert (pair_in(index).version, kept_pair(index)) == (2, first)
    swap(index)
    assert (pair_in(index), kept_pair(index).version) == (first, 2)


def test_page_follows_the_switch_and_the_way_back(index, models):
    with both_versions(models) as endpoint:
        url = endpoint.urls["REST"]
        with (
            open_search(index, url) as search,
            page_of(search, follow={"index": lambda: open_search(index, url)}) as page,
        ):
            first = post(page, IMAGE, k="3").json()
            assert first["model_version"] == 1
            assert first["hits"][0]["id"] == "red/pale.png"
            switch(index)
            wait_for(page, 2)
            second = post(page, IMAGE, k="3").json()
            assert second["model_version"] == 2
            similarities = [
                [hit["similarity"] for hit in reply["hits"]]
                for reply in (first, second)
            ]
            assert similarities[0] != similarities[1]
            assert page.get("/readyz").status_code == 200
            swap(index)
            wait_for(page, 1)
            again = post(page, IMAGE, k="3").json()
            assert again["hits"] == first["hits"]


def test_old_pair_answers_until_the_endpoint_serves_the_new_model(index, models):
    with (
        swapping(models / "1") as endpoint,
        following(index, endpoint.urls["REST"]) as (search, follower, used),
    ):
        assert follower.look_now()
        switch(index)
        assert not follower.look_now()
        assert used == []
        assert len(search.client.embed([IMAGE])) == 1
        endpoint.add(models / "2")
        assert follower.look_now()
        assert [new.pair.version for new in used] == [2]
        assert follower.look_now()
        assert len(used) == 1


def test_damaged_folder_leaves_the_pair_in_use(index, models):
    with (
        swapping(models / "1") as endpoint,
        following(index, endpoint.urls["REST"]) as (search, follower, used),
    ):
        (index / "manifest.json").write_text("{}")
        assert not follower.look_now()
        assert used == []
        assert len(search.client.embed([IMAGE])) == 1


def test_client_of_a_replaced_search_is_closed_when_nobody_uses_it(index, models):
    closed = []
    with swapping(models / "1") as endpoint:
        search = open_search(index, endpoint.urls["REST"])
        real = search.client.client.close
        search.client.client.close = lambda: (closed.append(1), real())
        search.listing.classes()
        assert closed == []
        del search
    assert closed == [1]


@pytest.mark.slow
def test_editable_page_gives_way_and_goes_on_with_the_new_pair(index, models):
    with both_versions(models) as endpoint:
        url = endpoint.urls["REST"]
        used = []

        def use(new):
            new.editor = GalleryEditor(new.index, on_change=new.listing.changed)
            used.append(new)

        with open_search(index, url) as search, page_of(search, editable=True) as page:
            follower = PairFollower(search, lambda: open_search(index, url), use)
            add = {"files": {"image": ("a.png", encoded((9, 9, 9)))}}
            with pause_wanted(index):
                follower.look_now()
                refused = page.post("/api/images", **add)
                assert "try again in a moment" in error_of(refused, 503)
                assert refused.headers["retry-after"] == "1"
                with held(index):
                    pass  # nobody else changes it
            assert follower.look_now()
            assert page.post("/api/images", **add).status_code == 201
            with pause_wanted(index):
                follower.look_now()
                switch(index)
            assert follower.look_now()
            assert [new.pair.version for new in used] == [2]
            other = {"files": {"image": ("b.png", encoded((9, 90, 9)))}}
            refused = page.post("/api/images", **other)
            assert "Nothing was changed" in error_of(refused, 503)
            used[0].editor.remove(["red/pale.png"])
            used[0].close()
    assert pair_in(index).version == 2


@pytest.mark.slow
def test_new_search_can_be_edited_by_visitors_of_the_page(index, models):
    with both_versions(models) as endpoint:
        url = endpoint.urls["REST"]
        with open_search(index, url) as search:
            follow = {"index": lambda: open_search(index, url)}
            with page_of(search, editable=True, follow=follow) as page:
                deadline = time.monotonic() + 120
                with pause_wanted(index):
                    while True:
                        try:
                            switch(index)
                            break
                        except OSError:  # the page gives way within a second
                            assert time.monotonic() < deadline
                            time.sleep(0.05)
                wait_for(page, 2)
                added = page.post(
                    "/api/images",
                    files={"image": ("a.png", IMAGE)},
                    data={"id": "red/new.png"},
                )
                assert added.status_code == 201
                found = post(page, IMAGE, k="1").json()["hits"][0]
                assert found["id"] == "red/new.png"
                assert found["similarity"] == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_new_queries_search_the_old_gallery_until_the_switch(index, models):
    with both_versions(models) as endpoint:
        url = endpoint.urls["REST"]
        with (
            open_search(index, url) as search,
            page_of(
                search,
                editable=True,
                follow={"index": lambda: open_search(index, url)},
            ) as page,
        ):
            pacing = Pacing(progress=False)
            first = post(page, IMAGE, k="1").json()["hits"][0]["similarity"]
            report = upgrade(
                index,
                models / "2",
                compatible=True,
                switch=False,
                largest_loss=0.2,
                pacing=pacing,
            )
            assert not report.is_switched
            wait_for(page, 2)
            assert pair_in(index).is_bridged
            found = post(page, IMAGE, k="3").json()
            assert found["model_version"] == 2
            assert found["hits"][0]["id"] == "red/pale.png"
            # The query of one model, the gallery of another.
            assert found["hits"][0]["similarity"] != pytest.approx(first, abs=1e-5)
            add = {"files": {"image": ("a.png", IMAGE)}}
            refused = error_of(page.post("/api/images", **add), 503)
            assert "embedded again" in refused
            upgrade(
                index, models / "2", compatible=True, largest_loss=0.2, pacing=pacing
            )
            deadline = time.monotonic() + 120
            while page.post("/api/images", **add).status_code == 503:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            hit = post(page, IMAGE, k="1").json()["hits"][0]
            assert hit["similarity"] == pytest.approx(1, abs=1e-3)
            assert not pair_in(index).is_bridged


def test_model_that_finds_less_in_the_old_gallery_may_not_search_it(index, models):
    pacing = Pacing(progress=False)
    with pytest.raises(ValueError, match="The new model is not compatible"):
        upgrade(index, models / "3", compatible=True, pacing=pacing)
    assert not pair_in(index).is_bridged
    assert pair_in(index).version == 1


def test_ended_upgrade_gives_queries_back_to_the_old_model(index, models):
    upgrade(
        index,
        models / "2",
        compatible=True,
        switch=False,
        largest_loss=0.2,
        pacing=Pacing(progress=False),
    )
    assert pair_in(index).version == 2
    assert cancel(index)
    assert pair_in(index).version == 1


@pytest.mark.slow
def test_page_at_a_label_moves_with_the_label_and_never_mixes(index, models):
    with both_versions(models) as endpoint:
        endpoint.label(stable=1, canary=2)
        url = endpoint.urls["REST"] + "/labels/stable"
        with following(index, url) as (search, follower, used):
            switch(index)
            assert not follower.look_now()
            assert search.client.url.endswith("/versions/1")
            endpoint.label(stable=2)
            assert follower.look_now()
            assert used[0].client.url.endswith("/versions/2")
            endpoint.label(stable=1)  # too early: the index is that of version 2
            assert len(used[0].client.embed([IMAGE])) == 1
            swap(index)
            assert follower.look_now()
            assert used[1].pair.version == 1
