r"""Take the screenshot of the search page, with the index and model of the demo.

    make demo                         # trains, exports and indexes
    python docs/screenshot.py indexes/demo models/demo \
        2614_umbrella-with-rain-drops/noto.png

It needs Playwright and Chromium, and writes docs/images/search-page.png.
"""

import argparse
import io
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright

from serving.search.app.app import create_app
from serving.search.gallery.opening import open_local_search
from tests.support.running_server import running

FILE = Path(__file__).parent / "images" / "search-page.png"
SIZE = {"width": 1280, "height": 860}
TIMEOUT = 120_000  # milliseconds


def main() -> None:
    """Search the index with one of its images, and take a screenshot of the hits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", help="folder that `index build` wrote")
    parser.add_argument("model", help="folder of numbered versions")
    parser.add_argument("id", help="image of the index to search with")
    parser.add_argument("--images", help="folder of the images, if they were moved")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parsed = parser.parse_args()
    with (
        open_local_search(parsed.index, parsed.model, images=parsed.images) as search,
        running(create_app(search)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=parsed.chromium)
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(TIMEOUT)
        page.goto(f"{address}/#like/{quote(parsed.id, safe='')}")
        page.locator(".hits .card").first.wait_for()
        page.get_by_role("button", name="Got it").click()  # as somebody who came back
        page.locator(".hits img").evaluate_all(
            "images => Promise.all(images.map((image) => image.decode()))"
        )
        content = page.screenshot()
        browser.close()
    FILE.parent.mkdir(exist_ok=True)
    # A palette of 192 colors looks the same, in a third of the bytes.
    image = Image.open(io.BytesIO(content)).convert("RGB")
    image.quantize(192, dither=Image.Dither.NONE).save(FILE, optimize=True)


if __name__ == "__main__":
    main()
