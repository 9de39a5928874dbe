"""The search service over the gallery of colors, which a whole file uses."""

import pytest


@pytest.fixture(scope="module")
def page(colors, colors_url):
    """Return a client of the service."""
    from serving.search.gallery.opening import open_search
    from tests.support.search_fixtures import MAX_UPLOAD_BYTES, page_of

    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search, max_upload_bytes=MAX_UPLOAD_BYTES) as client,
    ):
        yield client
