"""Galleries whose images are in the cloud: built, searched, shown and extended."""

import pytest

from serving.search.gallery.changing import add_images
from serving.search.gallery.choosing import choose_images, read_image_list
from serving.search.gallery.indexing import index_images
from serving.search.gallery.model_check import _checked_probes
from serving.search.gallery.opening import open_local_search
from serving.storage.remote_folder import RemoteFolder
from serving.storage.remote_image import RemoteImage, image_at, place_of
from tests.support.running_s3 import running_s3
from tests.support.search_fixtures import (
    encoded,
    error_of,
    page_of,
    write_color_model,
    write_gallery_images,
)
from tfdml.images import UnreadableImageError, read_image

URL = "s3://bucket/photos"
ALL = {"skip_unreadable": False, "outside_links": True}


def test_a_place_is_a_folder_here_or_in_the_cloud(tmp_path):
    cloud = RemoteFolder(URL)
    assert place_of(f"{URL}/") == cloud
    assert place_of(tmp_path / "a" / "..") == tmp_path.resolve()
    assert image_at(tmp_path, "a/b.png") == tmp_path / "a" / "b.png"
    assert image_at(cloud, "a/b.png") == RemoteImage(cloud, "a/b.png")
    # As a list has them that also names images of a folder of this machine.
    assert image_at(cloud, f"{URL}/a/b.png") == RemoteImage(cloud, "a/b.png")
    assert image_at(cloud, str(tmp_path / "x.png")) == tmp_path / "x.png"


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """The gallery of colors in a bucket, with files that are none of its images."""
    with running_s3(monkeypatch) as s3:
        s3.mkdir("bucket")
        images = write_gallery_images(tmp_path / "images")
        s3.put(str(images), "bucket/photos", recursive=True)
        for name in (".hidden/a.png", "notes.txt", "red/.b.png"):
            s3.pipe(f"bucket/photos/{name}", b"x")
        yield s3


@pytest.mark.slow
def test_images_of_a_bucket_are_listed_by_their_names(bucket, tmp_path):
    paths, notes = choose_images(RemoteFolder(URL), None, **ALL)
    assert len(paths) == 9
    assert paths[0] == "blue/clear.png"
    assert notes == ()
    (tmp_path / "only").write_text("red/pale.png\n")
    assert choose_images(RemoteFolder(URL), tmp_path / "only", **ALL)[0] == [
        "red/pale.png"
    ]
    (tmp_path / "only").write_text("red/none.png\n")
    with pytest.raises(ValueError, match=f"is not a file in '{URL}'"):
        read_image_list(tmp_path / "only", RemoteFolder(URL))
    with pytest.raises(ValueError, match="There is no image in 's3://bucket/none'"):
        choose_images(RemoteFolder("s3://bucket/none"), None, **ALL)


@pytest.mark.slow
def test_a_gallery_in_a_bucket_is_that_of_a_folder(bucket, tmp_path):
    model = tmp_path / "models" / "colors"
    write_color_model(model / "1")
    index = tmp_path / "index"
    report = index_images(URL, index, model, progress=False)
    assert (report.images, report.classes) == (9, 3)
    index_images(tmp_path / "images", tmp_path / "other", model, progress=False)
    with (
        open_local_search(index, model) as search,
        open_local_search(tmp_path / "other", model) as other,
    ):
        assert search.gallery.root == RemoteFolder(URL)
        ids = [item.id for item in other.items(other.listing.ids({})[:].tolist())]
        mine, theirs = (each.index.get(ids).embeddings for each in (search, other))
        assert (mine == theirs).all()
        image = search.file(search.item("red/pale.png"))
        assert read_image(image.read_bytes()).shape == (20, 24, 3)
        assert _checked_probes(search.client, search) is not None

        with page_of(search, feedback=tmp_path / "feedback") as page:
            found = page.post(
                "/api/search", files={"image": ("x", encoded((1, 2, 250)))}
            )
            hit = found.json()["hits"][0]
            assert hit["class"] == "blue"
            shown = page.get(f"/{hit['url']}")
            assert shown.headers["content-type"] == "image/jpeg"
            crop = {"id": "red/pale.png", "crop": [0, 0, 1, 0.5]}
            assert page.post("/api/search", json=crop).is_success
            two = {"id": (None, "red/pale.png"), "hit": (None, "red/clear.png")}
            assert page.post("/api/why", files=two).is_success
            rated = page.post("/api/feedback", files=two | {"verdict": (None, "right")})
            assert rated.status_code == 201
            assert len(list((tmp_path / "feedback").rglob("*.png"))) == 2
            bucket.rm("bucket/photos/green/pale.png")
            gone = page.get("/images", params={"id": "green/pale.png"})
            assert error_of(gone, 404)

    bucket.pipe("bucket/photos/red/new.png", encoded((250, 9, 9)))
    bucket.pipe("bucket/more/red/far.png", encoded((250, 9, 200)))
    bucket.pipe("bucket/more/red/broken.png", b"no image")
    options = {"model": model, "progress": False}
    added = add_images(index, f"{URL}/red", skip_existing=True, **options)
    assert added.added == 1
    with pytest.raises(UnreadableImageError, match=r"s3://bucket/more/red/broken\.png"):
        add_images(index, "s3://bucket/more", **options)
    add_images(index, "s3://bucket/more", skip_unreadable=True, **options)
    bucket.rm("bucket/more", recursive=True)
    with open_local_search(index, model) as search:
        assert isinstance(search.file(search.item("red/new.png")), RemoteImage)
        # Of another folder: its content is in that of the index.
        assert search.file(search.item("red/far.png")).is_file()
    with pytest.raises(ValueError, match="`images_folder` must be on this machine"):
        add_images(index, URL, endpoint="http://127.0.0.1:1/v1/models/colors")
