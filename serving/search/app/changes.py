"""The calls of the search service that change the gallery."""

import hashlib
import logging
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serving.search.app.requests import NewPicture, RequestReader
from serving.search.app.service import SearchService, missing
from serving.search.gallery.editing import Addition, ExistsError, GalleryEditor
from serving.search.gallery.gallery import CLASS
from serving.search.gallery.items import Item
from serving.search.gallery.uploads import read_picture
from tfdml.index import IndexFileError

_log = logging.getLogger(__name__)

# Each name takes a number for every picture of the gallery.
_MOST_NAMES = 64
_MAY_BE_ADDED = (
    "The picture may be added all the same. Send the request again: it answers 409 "
    "where the picture is there."
)
_MAY_BE_REMOVED = (
    "The picture may be removed all the same. Send the request again: it answers 404 "
    "where the picture is gone."
)


class GalleryChanges:
    """Adds pictures to the main gallery and removes them.

    Args:
        service: Searches it.
        reader: Reads the requests.
        editor: Changes it; None where nobody may.
    """

    def __init__(
        self,
        service: SearchService,
        reader: RequestReader,
        editor: GalleryEditor | None,
    ) -> None:
        self._service = service
        self._search = service.main
        self._reader = reader
        self._editor = editor

    async def add(self, request: Request) -> Response:
        """Add a picture to the gallery."""
        editor = self._allowed()
        new = await self._reader.new_picture(request)
        work = partial(self._add, editor, new)
        item = await self._service.embedding.run(work, late=_MAY_BE_ADDED)
        return JSONResponse(self._service.replies.item(self._search, item), 201)

    def _add(self, editor: GalleryEditor, new: NewPicture) -> Item:
        search = self._search
        known = search.index.stats().attributes
        if len({*known, *new.attributes}) > max(_MOST_NAMES, len(known)):
            raise HTTPException(
                400, f"The gallery may have at most {_MOST_NAMES} attributes."
            )
        suffix = read_picture(new.picture, search.max_pixels)
        id_ = new.id or _id_of(new, suffix)
        if id_ in search.index:
            raise _exists(id_)
        embedding = search.embed(new.picture)
        addition = Addition(id_, embedding, new.attributes, new.picture, suffix)
        try:
            editor.add([addition])
        except ExistsError as error:
            raise _exists(id_) from error
        except (IndexFileError, OSError) as error:
            raise _failed() from error
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        try:
            return search.item(id_)
        except KeyError as error:  # removed again by somebody else
            raise missing(id_) from error

    async def remove(self, request: Request) -> Response:
        """Remove a picture from the gallery."""
        editor = self._allowed()
        item = self._service.item_of(self._search, request)

        def remove() -> None:
            try:
                editor.remove([item.id])
            except KeyError as error:  # removed meanwhile
                raise missing(item.id) from error
            except (IndexFileError, OSError) as error:
                raise _failed() from error

        await self._service.searching.run(remove, late=_MAY_BE_REMOVED)
        return JSONResponse({"removed": item.id})

    def _allowed(self) -> GalleryEditor:
        if self._editor is None:
            raise HTTPException(
                403, "This gallery cannot be changed: start it with `--editable`."
            )
        return self._editor


def _id_of(new: NewPicture, suffix: str) -> str:
    """Return the id of a picture for which none was named: its class and content."""
    name = f"{hashlib.sha256(new.picture).hexdigest()[:16]}.{suffix}"
    return f"{new.attributes[CLASS]}/{name}" if CLASS in new.attributes else name


def _failed() -> HTTPException:
    """Make the error for a disk that is full, or an index that was replaced."""
    _log.exception("The gallery could not be changed.")
    return HTTPException(500, "The gallery could not be changed; the log says why.")


def _exists(id_: str) -> HTTPException:
    return HTTPException(
        409, f"There is an image {id_[:100]!r} in the gallery already."
    )
