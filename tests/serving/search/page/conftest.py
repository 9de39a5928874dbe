"""One browser and one server for all tests of the page, a fresh context per test."""

import contextlib
import shutil

import pytest

from serving.web.access import TokenAccess
from tests.serving.search.page.browsing import DESKTOP, PHONE, served, visiting
from tests.support.running_chromium import chromium
from tests.support.token_files import write_tokens

TOKEN = "a-token-of-this-test-only"


# Not for the session: asyncio cannot be used while Playwright runs.
@pytest.fixture(scope="package")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def address(colors, colors_url, tmp_path_factory):
    """The page of a gallery of 9 images, which cannot be changed."""
    index = tmp_path_factory.mktemp("page") / "index"
    shutil.copytree(colors / "index", index)  # a map will be kept in it
    with served(index, colors_url, max_upload_bytes=100_000) as address:
        yield address


@pytest.fixture(scope="package")
def token():
    return TOKEN


@pytest.fixture(scope="package")
def guarded(colors, colors_url, tmp_path_factory):
    """The same page behind a token."""
    file = write_tokens(tmp_path_factory.mktemp("access") / "tokens", f"{TOKEN}\n")
    with served(colors / "index", colors_url, access=TokenAccess(file)) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    """Open the page in a fresh context, which is closed and checked after the test."""
    with contextlib.ExitStack() as stack:

        def visit(start="", *, at=address, phone=False, viewport=None, **options):
            viewport = viewport or (PHONE if phone else DESKTOP)
            opened = visiting(browser, at, viewport, start=start, **options)
            return stack.enter_context(opened)

        yield visit


@pytest.fixture
def page(visit):
    return visit()
