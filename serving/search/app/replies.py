"""Describe images, hits and indexes in JSON types."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from ..gallery.gallery import CLASS
from ..gallery.image_search import ImageSearch
from ..gallery.items import Hit, Item
from ..gallery.query import Query
from ..gallery.report import engine_of, method_of
from ..gallery.stored_images import STORED_IMAGE

_MOST_VALUES = 2_000  # of an attribute that a filter offers
# In the details of an index; for its owner alone.
_PLACES = ("folder", "uri", "database", "collection", "table", "server")
_TAG = 16  # characters of a hash that distinguish two images


class Replies:
    """Describe images, hits and indexes.

    Args:
        main: Name of the search whose images are named by their id alone; the address
            of an image of another also names that search.
    """

    def __init__(self, main: str) -> None:
        self._main = main
        # A file below the root may have changed between two runs of the service.
        self._run = secrets.token_hex(_TAG // 2)

    def tag(self, item: Item) -> str:
        """Return a tag that changes when another image gets the same id."""
        return self._run if item.stored is None else item.stored[:_TAG]

    def item(self, search: ImageSearch, item: Item) -> dict[str, Any]:
        """Describe an image."""
        url = f"images?id={quote(item.id, safe='')}"
        if search.name != self._main:
            url += f"&index={quote(search.name, safe='')}"
        return {
            "id": item.id,
            "class": item.class_name,
            "url": f"{url}&v={self.tag(item)}",
            "attributes": {
                name: value
                for name, value in item.attributes.items()
                if name not in (CLASS, STORED_IMAGE)
            },
        }

    def hits(
        self,
        search: ImageSearch,
        query: Query,
        hits: Sequence[Hit],
        described: dict[str, Any] | None,
        start: float,
    ) -> dict[str, Any]:
        """Describe the hits of a search.

        Args:
            search: The search.
            query: What was asked for.
            hits: Its hits.
            described: The description of the query, if it is an image of a gallery.
            start: When the search began, by `time.perf_counter`.
        """
        reply: dict[str, Any] = {
            "query": described,
            "hits": [
                self.item(search, hit.item)
                | {"similarity": hit.similarity}
                | ({} if hit.is_match is None else {"match": hit.is_match})
                for hit in hits
            ],
            "seconds": round(time.perf_counter() - start, 4),
            "index": search.name,
            "model_version": search.pair.version,
        }
        known = search.gallery.calibration
        if known is not None and query.is_plain:
            # Hits come nearest first: if the first is not a match, none is.
            is_match = any(hit.is_match for hit in hits[:1])
            reply |= {"match": is_match, "threshold": known.threshold}
        return reply

    def index(self, search: ImageSearch) -> dict[str, Any]:
        """Describe an index and its model."""
        index, gallery = search.index, search.gallery
        known = gallery.calibration
        return {
            "name": search.name,
            "images": index.count(),
            "classes": search.listing.classes(),
            "model": {
                "name": gallery.model_name,
                "version": gallery.model_version,
                "fingerprint": search.pair.fingerprint,
            },
            "method": method_of(index),
            "engine": engine_of(index),
            "recall": index.stats().details.get("recall"),
            "dimension": index.dimension,
            "embedding_dimension": index.embedding_dimension,
            "metric": index.metric,
            "has_text": search.has_text,
        } | ({"calibration": known.to_json()} if known else {})

    def stats(self, search: ImageSearch) -> dict[str, Any]:
        """Describe an index and its content, without where it is."""
        stats = asdict(search.index.stats())
        for name in _PLACES:
            stats["details"].pop(name, None)
        stats["attributes"].pop(STORED_IMAGE, None)
        return {
            "name": search.name,
            **stats,
            "values": search.listing.values(_MOST_VALUES),
        }
