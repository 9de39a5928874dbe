"""Visit the search page in headless Chromium, and time what it shows."""

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_WIDTH, _HEIGHT = 1280, 800
_LIMIT_MS = 60_000

# All images of the first view are there.
_STARTED = """() => {
  const images = [...document.querySelectorAll("#strip img")];
  return images.length > 0 && images.every((one) => one.complete && one.naturalWidth);
}"""

# Times a drop: until the cards of its hits are listed, and until the images of all of
# them are decoded and a frame with them was drawn. Cards of the drop before are marked.
_DROP = """async ([bytes, name, limit]) => {
  const frame = () => new Promise(requestAnimationFrame);
  for (const card of document.querySelectorAll(".card")) card.dataset.old = "";
  performance.clearResourceTimings();
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], name, { type: "image/jpeg" }));
  const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
  const start = performance.now();
  document.body.dispatchEvent(new DragEvent("drop", options));
  let listed = null;
  while (performance.now() < start + limit) {
    await frame();
    const error = document.querySelector("#status.error");
    if (error?.textContent) throw new Error(error.textContent);
    const images = [...document.querySelectorAll(".hits .card:not([data-old]) img")];
    if (!images.length) continue;
    listed ??= performance.now() - start;
    if (!images.every((one) => one.complete && one.naturalWidth)) continue;
    await Promise.all(images.map((one) => one.decode()));
    await frame();
    const shown = performance.now() - start;
    const search = performance.getEntriesByType("resource")
      .find((one) => one.name.includes("/api/search"));
    return { hits: images.length, listed_ms: listed, shown_ms: shown,
      search_ms: search.duration };
  }
  throw new Error(`The hits were not shown in ${limit} ms.`);
}"""


class Visitor:
    """Somebody who has opened the page for the first time.

    Args:
        page: Of Playwright, in a context of its own: nothing is cached.
        address: Where the search page is.
    """

    def __init__(self, page: Any, address: str) -> None:
        self._page = page
        self._address = address

    def open(self) -> dict[str, Any]:
        """Open the page and wait until its first view is complete.

        Returns:
            `requests`, and bytes of the bodies as they came, in all (`bytes`) and by
            what they are: `page_bytes` (HTML, CSS, scripts), `api_bytes`,
            `image_bytes`.
        """
        finished: list[Any] = []

        def note(request: Any) -> None:
            finished.append(request)

        self._page.on("requestfinished", note)
        self._page.goto(f"{self._address}/")
        self._page.wait_for_function(_STARTED, timeout=_LIMIT_MS)
        self._page.wait_for_load_state("networkidle")
        self._page.remove_listener("requestfinished", note)
        bytes_: Counter[str] = Counter()
        for request in finished:
            bytes_[_kind(request.url)] += request.sizes()["responseBodySize"]
        return {
            "requests": len(finished),
            "bytes": bytes_.total(),
            **{
                f"{name}_bytes": bytes_[name]
                for name in ("page", "api", "image")  # also those that are 0
            },
        }

    def drop(self, file: Path) -> dict[str, float]:
        """Drop an image on the page and wait for its hits.

        Args:
            file: The image.

        Returns:
            `hits`, how many; `search_ms`, until the service had answered;
            `listed_ms`, from the drop until their cards were there; `shown_ms`, until
            their images were all shown.
        """
        data = [list(file.read_bytes()), file.name, _LIMIT_MS]
        timed: dict[str, float] = self._page.evaluate(_DROP, data)
        return timed


def _kind(url: str) -> str:
    path = urlsplit(url).path
    if path.startswith("/api/"):
        return "api"
    return "image" if path in ("/images", "/pictures") else "page"


@contextlib.contextmanager
def visiting(address: str) -> Iterator[Visitor]:
    """Start Chromium and yield a visitor who has not opened the page yet.

    Raises:
        FileNotFoundError: There is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        raise FileNotFoundError(
            "The page is measured in Chromium: apt-get install chromium."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=list(_FLAGS)
        )
        try:
            context = browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT})
            yield Visitor(context.new_page(), address)
        finally:
            browser.close()
