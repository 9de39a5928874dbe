"""Serve the search page to Chromium, and wait for what it shows."""

import contextlib
import re
import shutil
from urllib.parse import urlsplit

from playwright.sync_api import expect

from serving.search.app.app import create_app
from serving.search.gallery.opening import open_search
from tests.support.running_server import running

# Milliseconds until a test gives up: a machine of tests may stand still for a minute.
TIMEOUT = 120_000
expect.set_options(timeout=TIMEOUT)

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 800}
WIDTHS = {"desktop": DESKTOP, "phone": PHONE}


@contextlib.contextmanager
def served(index, endpoint_url, *, compare=None, **options):
    """Serve the page of an index folder; gives its address.

    `compare` is the index folder and the endpoint of a second one.
    """
    with contextlib.ExitStack() as stack:
        search = stack.enter_context(open_search(index, endpoint_url))
        other = None
        if compare is not None:
            other = stack.enter_context(open_search(*compare))
        app = create_app(search, compare=other, **options)
        yield stack.enter_context(running(app))


@contextlib.contextmanager
def editable(index, endpoint_url, copy, **options):
    """Serve a copy of an index that may be changed; gives its address."""
    shutil.copytree(index, copy)
    with served(copy, endpoint_url, editable=True, **options) as address:
        yield address


@contextlib.contextmanager
def visiting(browser, address, viewport=DESKTOP, *, start="", answers=None, **options):
    """Open the page; at the end, no request went elsewhere and no script failed.

    `start` is the fragment to begin with, `answers` are handlers of requests by the
    pattern of their address, and `options` go to the browser.
    """
    is_phone = viewport is PHONE
    context = browser.new_context(
        viewport=viewport, has_touch=is_phone, is_mobile=is_phone, **options
    )
    page = context.new_page()
    page.set_default_timeout(TIMEOUT)
    requests, errors = [], []
    page.on("request", lambda sent: requests.append(sent.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            errors.append(message.text) if message.type == "error" else None
        ),
    )
    for pattern, handler in (answers or {}).items():
        page.route(pattern, handler)
    try:
        page.goto(f"{address}/{start}")
        yield page
    finally:
        context.close()
    hosts = {urlsplit(url).netloc for url in requests if not url.startswith("blob:")}
    assert hosts == {urlsplit(address).netloc}
    # Chromium itself reports each request that was refused or aborted.
    own = [text for text in errors if "Failed to load resource" not in text]
    assert own == []


def upload(page, file):
    page.set_input_files("#file", file)


def status(page):
    return page.locator("#status")


def settled(page):
    """Wait until nothing is being loaded; the view itself must be there already."""
    expect(status(page)).not_to_have_class(re.compile("busy"))


def hit_ids(page, place=0):
    """List the ids of the hits in one column."""
    cards = page.locator("#columns > .column").nth(place).locator(".card")
    return cards.evaluate_all("cards => cards.map(card => card.title)")


def choose_class(page, name):
    """Type a class into the filter of the view; "" is all classes."""
    field = page.get_by_label("Class", exact=True)
    field.fill(name)
    field.press("Enter")


def has_no_horizontal_scrolling(page):
    root = "document.documentElement"
    return page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")


class Held:
    """Keeps the first request to an address back until it is let go.

    Those after it pass. With `only`, requests of other methods pass as well.
    """

    def __init__(self, page, pattern, *, only=None):
        self.count = 0
        self._only = only
        self._first = None
        page.route(pattern, self._answer)

    def _answer(self, route):
        if self._only not in (None, route.request.method):
            route.fallback()
            return
        self.count += 1
        if self.count == 1:
            self._first = route
        else:
            route.continue_()

    def let_go(self):
        self._first.continue_()
