"""That images which unpack to much memory wait for each other, or are refused."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from serving.search.gallery import image_search
from serving.search.gallery.opening import open_search
from serving.search.gallery.uploads import memory_of
from serving.web.image_memory import ImageMemory
from tests.support.search_fixtures import encoded, error_of, page_of


def image(kind, mode, size=(100, 50), **options):
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "mode", "of_pixel"),
    [
        # As measured: the peak of `read_image` and of the reduction, by the pixel.
        ("PNG", "RGB", 9),
        ("PNG", "RGBA", 9),
        ("PNG", "LA", 9),
        ("PNG", "I;16", 18.9),
        ("TIFF", "F", 21),
        ("JPEG", "RGB", 9.1),
        ("JPEG", "CMYK", 9.1),
        ("WEBP", "RGBA", 16.7),
        ("AVIF", "RGB", 12.9),
        ("JPEG2000", "RGBA", 8.4),
        ("GIF", "P", 6.3),
    ],
)
def test_memory_of_an_image_covers_what_was_measured(kind, mode, of_pixel, tmp_path):
    content = image(kind, mode)
    assert of_pixel * 5000 <= memory_of(content) <= 2 * of_pixel * 5000
    (tmp_path / "image").write_bytes(content)
    assert memory_of(tmp_path / "image") == memory_of(content)


def test_what_is_no_image_takes_no_memory(tmp_path):
    assert memory_of(b"") == memory_of(b"no image") == memory_of(tmp_path) == 0
    assert memory_of(tmp_path / "nowhere") == 0


def test_large_uploads_wait_for_each_other(colors, colors_url, monkeypatch):
    content = encoded((200, 30, 30), size=(400, 300))
    inside, most = 0, 0
    lock = threading.Lock()

    def counted(*arguments, **options):
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        pixels = read(*arguments, **options)
        with lock:
            inside -= 1
        return pixels

    read = image_search.read_image
    monkeypatch.setattr(image_search, "read_image", counted)
    memory = ImageMemory(memory_of(content) * 3 // 2)
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search, memory=memory) as page,
        ThreadPoolExecutor(8) as pool,
    ):

        def post(_):
            files = {"image": ("query", content)}
            return page.post("/api/search", files=files, data={"k": "1"})

        for response in pool.map(post, range(12)):
            assert response.json()["hits"][0]["class"] == "red"
    assert most == 1


def test_image_above_the_whole_memory_is_refused_and_others_are_not(colors, colors_url):
    small, large = encoded((200, 30, 30)), encoded((200, 30, 30), size=(400, 300))
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search, memory=ImageMemory(memory_of(small))) as page,
    ):
        for content, status in ((large, 400), (small, 200)):
            response = page.post("/api/search", files={"image": ("query", content)})
            if status == 400:
                text = error_of(response, status)
                assert "`--image-memory-bytes`" in text
                assert "Send a smaller image" in text
            else:
                assert response.status_code == status


def test_image_of_the_owner_is_shown_whatever_its_size(colors, colors_url):
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search, memory=ImageMemory(1)) as page,
    ):
        shown = page.get("/images", params={"id": "red/clear.png"})
        assert shown.status_code == 200
