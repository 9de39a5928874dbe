"""Images are added and removed over HTTP, while others search."""

import contextlib
import hashlib
import re
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest

from serving.search.app.app import create_app, run
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.opening import open_search
from serving.search.gallery.stored_images import StoredImages
from tests.support.running_process import running_process
from tests.support.search_fixtures import encoded, error_of, page_of
from tfdml.index import LockedError


@pytest.fixture
def folder(colors, tmp_path):
    """The images and a copy of the index, which a test may change."""
    shutil.copytree(colors / "index", tmp_path / "index")
    (tmp_path / "images").symlink_to(colors / "images")
    return tmp_path


@pytest.fixture
def page(folder, colors_url):
    with (
        open_search(folder / "index", colors_url) as search,
        page_of(search, editable=True) as client,
    ):
        yield client


def add(page, content, **fields):
    return page.post("/api/images", files={"image": ("x", content)}, data=fields)


def search(page, content, **fields):
    files = {"image": ("x", content)}
    return page.post("/api/search", files=files, data=fields).json()["hits"]


def ids_of(page):
    """Return the ids of all images, of which one reply lists at most 100."""
    ids, total = [], 1
    while len(ids) < total:
        place = {"limit": 100, "offset": len(ids)}
        reply = page.get("/api/images", params=place).json()
        ids += [image["id"] for image in reply["images"]]
        total = reply["total"]
    return ids


# Adding


def test_an_added_image_is_found_shown_and_listed(page, folder):
    content = encoded((200, 200, 0))
    reply = add(
        page,
        content,
        id="new/yellow.png",
        **{"class": "yellow", "attributes": '{"price": 3, "used": true}'},
    )
    assert reply.status_code == 201
    item = reply.json()
    assert (item["id"], item["class"]) == ("new/yellow.png", "yellow")
    assert item["attributes"] == {"price": 3, "used": True}
    (hit,) = search(page, content, k=1)
    assert hit["similarity"] == pytest.approx(1, abs=1e-5)
    assert {name: hit[name] for name in item} == item
    for path in (item["url"], item["url"].replace("images", "pictures")):
        assert page.get(f"/{path}").headers["content-type"] == "image/jpeg"
    assert ids_of(page)[-1] == "new/yellow.png"
    (index,) = page.get("/api/info").json()["indexes"]
    assert (index["images"], index["classes"]) == (10, 4)
    found = search(page, content, where='{"price": {"most": 5}}')
    assert [hit["id"] for hit in found] == ["new/yellow.png"]
    assert page.get("/api/stats").json()["values"]["class"]["yellow"] == 1


def test_an_image_is_stored_as_it_was_sent_under_its_content(page, folder):
    content = encoded((9, 99, 9), "JPEG")
    add(page, content, id="leads/to.exe")
    (file,) = (folder / "index" / "pictures").iterdir()
    assert file.name == f"{hashlib.sha256(content).hexdigest()}.jpg"
    assert file.read_bytes() == content
    assert not list(folder.rglob("leads"))
    reply = page.get("/images", params={"id": "leads/to.exe"})
    assert reply.status_code == 200


def test_an_image_without_a_name_gets_one_of_its_content(page):
    content = encoded((1, 2, 3))
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.png"
    assert add(page, content).json()["id"] == name
    assert "already" in error_of(add(page, content), 409)
    reply = add(page, content, **{"class": "dark"})
    assert reply.json()["id"] == f"dark/{name}"


def test_an_id_of_the_gallery_is_not_added_again(page, folder):
    text = error_of(add(page, encoded((1, 2, 3)), id="red/pale.png"), 409)
    assert "already has an image 'red/pale.png'" in text
    assert not list((folder / "index").glob("pictures/*"))


@pytest.mark.parametrize(
    ("content", "fields", "reason"),
    [
        (b"no image", {}, "not an image"),
        (b"", {}, "is empty"),
        (encoded((1, 2, 3))[:60], {}, "cannot be read"),
        (encoded((1, 2, 3)), {"id": "a\nb"}, "`id` must have 1 to 500 printable"),
        (encoded((1, 2, 3)), {"id": "a" * 501}, "`id` must have"),
        (encoded((1, 2, 3)), {"class": " x"}, "`class` must have"),
        (encoded((1, 2, 3)), {"attributes": "[]"}, "must be a JSON object"),
        (encoded((1, 2, 3)), {"attributes": '{"picture": "x"}'}, "its own meaning"),
        (encoded((1, 2, 3)), {"attributes": '{"class": "x"}'}, "its own meaning"),
        (encoded((1, 2, 3)), {"attributes": '{"a": null}'}, "must be a string, a"),
        (encoded((1, 2, 3)), {"attributes": '{"a": NaN}'}, "not finite"),
        (encoded((1, 2, 3)), {"attributes": '{"a": "\\u0000"}'}, "NUL"),
        (encoded((1, 2, 3)), {"folder": "x"}, "Received: 'folder'"),
    ],
)
def test_what_cannot_be_added_is_refused_and_leaves_nothing(
    page, folder, content, fields, reason
):
    assert reason in error_of(add(page, content, **fields), 400)
    assert len(ids_of(page)) == 9
    assert not list((folder / "index").glob("pictures/*"))


def test_an_image_that_the_model_makes_nothing_of_is_not_added(page, folder):
    text = error_of(add(page, encoded((0, 0, 0))), 502)
    assert "returned no embedding" in text
    assert not list((folder / "index").glob("pictures/*"))


def test_an_attribute_of_another_kind_is_refused(page, folder):
    assert add(page, encoded((1, 2, 3)), attributes='{"price": 3}').status_code == 201
    reply = add(page, encoded((3, 2, 1)), attributes='{"price": "much"}')
    assert "kind" in error_of(reply, 400)
    assert len(list((folder / "index").glob("pictures/*"))) == 1


@pytest.mark.parametrize(
    "id_", ["../x.png", "/etc/x.png", "a/../x.png", "a//x.png", "./x.png", "..\\x.png"]
)
def test_id_that_leads_out_of_a_folder_is_refused(page, id_):
    text = error_of(add(page, encoded((1, 2, 3)), id=id_), 400)
    assert "`id` must be a path below the gallery" in text
    assert len(ids_of(page)) == 9


def test_class_that_leads_out_of_a_folder_makes_no_such_id(page):
    reply = add(page, encoded((1, 2, 3)), **{"class": "../up"})
    assert reply.status_code == 201
    assert reply.json()["class"] == "../up"
    assert "/" not in reply.json()["id"]


def test_a_disk_that_is_full_is_reported(page, folder, monkeypatch, caplog):
    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        reply = add(page, encoded((1, 2, 3)))
        assert "the disk of the gallery is full" in error_of(reply, 507)
    assert str(folder / "index") in caplog.text
    assert add(page, encoded((1, 2, 3))).status_code == 201
    assert len(ids_of(page)) == 10


def test_gallery_over_which_a_backup_is_restored_takes_no_change(
    page, folder, tmp_path
):
    shutil.copytree(folder / "index", tmp_path / "backup")
    assert add(page, encoded((1, 2, 3)), id="a.png").status_code == 201
    (folder / "index").rename(tmp_path / "aside")
    (tmp_path / "backup").rename(folder / "index")
    text = "another index is in the folder of this one"
    assert text in error_of(add(page, encoded((3, 2, 1)), id="b.png"), 503)
    removed = page.delete("/api/images", params={"id": "a.png"})
    assert text in error_of(removed, 503)
    assert "a.png" in ids_of(page)  # it shows what it had, and says when it cannot save


def test_attributes_without_end_are_refused(page):
    for number in range(3):
        names = {f"a{number}-{i}": i for i in range(31)}
        text = str(names).replace("'", '"')
        reply = add(page, encoded((1, 2, number)), attributes=text)
    assert "at most 64 attributes" in error_of(reply, 400)


# Removing


def test_a_removed_image_is_found_no_more(page, folder):
    content = encoded((200, 200, 0))
    add(page, content, id="yellow")
    for id_ in ("yellow", "red/clear.png"):
        reply = page.delete("/api/images", params={"id": id_})
        assert reply.json() == {"removed": id_}
        assert id_ not in [hit["id"] for hit in search(page, content)]
        assert error_of(page.get("/images", params={"id": id_}), 404)
        assert error_of(page.delete("/api/images", params={"id": id_}), 404)
    assert len(ids_of(page)) == 8
    # What was added is gone, what was indexed stays in its folder.
    assert not list((folder / "index" / "pictures").iterdir())
    assert (folder / "images" / "red" / "clear.png").exists()
    assert page.get("/api/info").json()["indexes"][0]["images"] == 8


def test_a_stored_image_goes_with_the_last_id_that_has_it(page, folder):
    content = encoded((200, 200, 0))
    add(page, content, id="one")
    add(page, content, id="two")
    (file,) = (folder / "index" / "pictures").iterdir()
    page.delete("/api/images", params={"id": "one"})
    assert file.exists()
    assert page.get("/images", params={"id": "two"}).status_code == 200
    page.delete("/api/images", params={"id": "two"})
    assert not file.exists()


def test_another_image_of_the_same_id_has_another_address(page):
    first = add(page, encoded((200, 200, 0)), id="x").json()
    page.delete("/api/images", params={"id": "x"})
    second = add(page, encoded((0, 200, 200)), id="x").json()
    assert first["url"] != second["url"]
    shown = page.get(f"/{second['url']}")
    assert "immutable" in shown.headers["cache-control"]
    assert shown.content != page.get("/images", params={"id": "red/pale.png"}).content
    assert "immutable" not in page.get(f"/{first['url']}").headers["cache-control"]


def test_near_duplicates_are_those_of_the_gallery_as_it_is_now(page):
    def groups():
        reply = page.get("/api/duplicates", params={"threshold": 0.9999}).json()
        return [[image["id"] for image in group["images"]] for group in reply["groups"]]

    assert groups() == []
    for id_ in ("one", "two"):
        add(page, encoded((200, 200, 0)), id=id_)
    assert groups() == [["one", "two"]]
    page.delete("/api/images", params={"id": "one"})
    assert groups() == []


# Who may


def test_nothing_is_changed_unless_the_service_was_started_so(folder, colors_url):
    with (
        open_search(folder / "index", colors_url) as search,
        page_of(search) as page,
    ):
        assert "`--editable`" in error_of(add(page, encoded((1, 2, 3))), 403)
        reply = page.delete("/api/images", params={"id": "red/pale.png"})
        assert "`--editable`" in error_of(reply, 403)
        assert page.get("/api/info").json()["can_edit"] is False
        assert len(ids_of(page)) == 9


def test_one_service_changes_a_gallery_at_a_time(page, folder, colors_url):
    with (
        open_search(folder / "index", colors_url) as search,
        pytest.raises(LockedError, match="is being changed"),
    ):
        create_app(search, editable=True)


def test_a_service_for_others_is_not_editable_without_a_token(folder, colors_url):
    with pytest.raises(
        ValueError, match=r"`editable` and .* need a token.*host='192\.0\.2\.7'"
    ):
        run(folder / "index", colors_url, host="192.0.2.7", port=0, editable=True)


# At one time


@pytest.mark.slow
def test_a_search_finds_no_id_whose_image_is_missing(page):
    """Four threads add and remove, four search and look at all that they find."""
    until = time.monotonic() + 3
    failures = []

    def change(thread):
        generator = np.random.default_rng(thread)
        with httpx2.Client(base_url=page.base_url, timeout=60) as client:
            for number in range(10_000):
                if time.monotonic() > until:
                    return
                color = tuple(generator.integers(1, 256, 3).tolist())
                id_ = f"{thread}/{number}"
                reply = add(client, encoded(color), id=id_)
                if reply.status_code != 201:
                    failures.append(reply.text)
                if number % 2:
                    removed = client.delete("/api/images", params={"id": id_})
                    if removed.status_code != 200:
                        failures.append(removed.text)

    def look(thread):
        with httpx2.Client(base_url=page.base_url, timeout=60) as client:
            while time.monotonic() < until:
                hits = search(client, encoded((thread * 50 + 1, 9, 200)), k=20)
                for hit in hits:
                    reply = client.get(f"/{hit['url']}")
                    if reply.status_code == 404 and "is gone" in reply.text:
                        # Removed while its file was looked for: the gallery knows.
                        reply = client.get(f"/{hit['url']}")
                    if reply.status_code == 404:
                        # Removed since: the gallery says so too.
                        text = reply.json()["error"]
                        if "There is no image" not in text:
                            failures.append(text)
                    elif reply.status_code != 200:
                        failures.append(reply.text)

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(job, i) for job in (change, look) for i in range(4)]
    for job in jobs:
        job.result()
    assert failures == []


# The process ends


PROGRAM = """
import sys
from serving.search.app.app import run
run(sys.argv[1], sys.argv[2], port=0, editable=True)
"""


@contextlib.contextmanager
def service(folder, url):
    """Run the page in a process of its own; yields a client of it, and `kill`."""
    command = [sys.executable, "-c", PROGRAM, folder / "index", url]
    with running_process(command) as process:
        line = process.stdout.readline()
        address = re.match(r"Image search: (\S+)", line)[1]
        with httpx2.Client(base_url=address, timeout=60) as client:
            yield SimpleNamespace(client=client, kill=process.kill)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.full)])
def test_what_was_acknowledged_survives_a_kill_at_any_moment(folder, colors_url, kills):
    generator = np.random.default_rng(7)
    expected = set(load_gallery(folder / "index")[0].ids.tolist())
    unsure = set()
    for round_ in range(kills):
        with service(folder, colors_url) as running:
            client = running.client
            timer = threading.Timer(generator.uniform(0.05, 1.0), running.kill)
            assert expected <= set(ids_of(client)) <= expected | unsure
            expected, unsure = set(ids_of(client)), set()
            timer.start()
            try:
                for number in range(10_000):
                    id_ = f"{round_}-{number}"
                    unsure = {id_}
                    color = (round_ + 1, number % 255 + 1, 200)
                    assert add(client, encoded(color), id=id_).status_code == 201
                    expected.add(id_)
                    if number % 3 == 2:
                        gone = f"{round_}-{number - 1}"
                        unsure = {gone}
                        expected.discard(gone)
                        client.delete("/api/images", params={"id": gone})
                    unsure = set()
            except httpx2.TransportError:
                pass
            finally:
                timer.join()
    with service(folder, colors_url) as running:
        found = set(ids_of(running.client))
        assert expected <= found <= expected | unsure
        for id_ in found:
            reply = running.client.get("/images", params={"id": id_})
            assert reply.status_code == 200
    # No image is left that no id has.
    index, _ = load_gallery(folder / "index")
    known = index.get(index.ids).attributes
    stored = {own["picture"] for own in known if "picture" in own}
    assert set(StoredImages(folder / "index").names()) == stored
