"""Answer the calls of the search service that change the gallery."""

import hashlib
import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tfdml.files import DISK_IS_FULL
from tfdml.index import IndexFileError

from ..gallery.editing import Addition, ExistsError, GalleryEditor, PausedError
from ..gallery.gallery import CLASS, is_below
from ..gallery.image_search import ImageSearch
from ..gallery.items import Item
from ..gallery.uploads import check_upload
from .errors import exists, missing, refuse
from .requests import NewImage, RequestReader
from .service import SearchService

_log = logging.getLogger(__name__)

# Each name takes memory for every image of the gallery.
_MOST_NAMES = 64
_MAY_BE_ADDED = (
    "The image may still be added. Send the request again: 409 means that it was."
)
_MAY_BE_REMOVED = (
    "The image may still be removed. Send the request again: 404 means that it was."
)


class GalleryChanges:
    """Add images to the main gallery and remove them.

    Args:
        service: Searches it.
        reader: Reads the requests.
    """

    def __init__(self, service: SearchService, reader: RequestReader) -> None:
        self._service = service
        self._reader = reader

    async def add(self, request: Request) -> Response:
        """Add an image to the gallery."""
        self._allowed()
        new = await self._reader.new_image(request)
        search, editor = self._allowed()  # what embeds, and what is changed
        item = await self._service.embedding.run(
            lambda: self._add(search, editor, new), late=_MAY_BE_ADDED
        )
        return JSONResponse(self._service.replies.item(search, item), 201)

    def _add(self, search: ImageSearch, editor: GalleryEditor, new: NewImage) -> Item:
        known = search.index.stats().attributes
        if len({*known, *new.attributes}) > max(_MOST_NAMES, len(known)):
            refuse(f"The gallery may have at most {_MOST_NAMES} attributes.")
        suffix = check_upload(new.content, search.max_pixels)
        id_ = new.id or _id_of(new, suffix)
        if id_ in search.index:
            raise exists(id_)
        embedding = search.embed(new.content)
        addition = Addition(id_, embedding, new.attributes, new.content, suffix)
        try:
            editor.add([addition])
        except ExistsError as error:
            raise exists(id_) from error
        except (IndexFileError, OSError) as error:
            raise _failed(error) from error
        except ValueError as error:
            refuse(str(error))
        try:
            return search.item(id_)
        except KeyError as error:  # removed again by somebody else
            raise missing(id_) from error

    async def remove(self, request: Request) -> Response:
        """Remove an image from the gallery."""
        search, editor = self._allowed()
        item = self._service.item_of(search, request)

        def remove() -> None:
            try:
                editor.remove([item.id])
            except KeyError as error:  # removed meanwhile
                raise missing(item.id) from error
            except (IndexFileError, OSError) as error:
                raise _failed(error) from error

        await self._service.searching.run(remove, late=_MAY_BE_REMOVED)
        return JSONResponse({"removed": item.id})

    def _allowed(self) -> tuple[ImageSearch, GalleryEditor]:
        search = self._service.main
        if search.pair.is_bridged:
            raise HTTPException(
                503,
                "Nothing was changed. The gallery is being embedded again, and takes "
                "changes when that is done.",
                {"retry-after": "60"},
            )
        if search.editor is None:
            raise HTTPException(
                403, "This gallery cannot be changed: start it with `--editable`."
            )
        return search, search.editor


def _id_of(new: NewImage, suffix: str) -> str:
    """Return the id of an image that was sent without one: its class and content."""
    name = f"{hashlib.sha256(new.content).hexdigest()[:16]}.{suffix}"
    id_ = f"{new.attributes[CLASS]}/{name}" if CLASS in new.attributes else name
    return id_ if is_below(id_.replace("\\", "/")) else name


def _failed(error: Exception) -> HTTPException:
    """Create the error for a disk that is full, or an index that was replaced."""
    if isinstance(error, PausedError):
        return HTTPException(503, f"Nothing was changed. {error}", {"retry-after": "1"})
    _log.exception("The gallery could not be changed.")
    if isinstance(error, IndexFileError):
        return HTTPException(
            503,
            "Nothing was changed: another index is in the folder of this one, or it "
            "was moved, since the service began. Start the service again.",
        )
    if isinstance(error, OSError) and error.errno in DISK_IS_FULL:
        return HTTPException(
            507,
            "Nothing was changed: the disk of the gallery is full. Searching goes on. "
            "Make room and send the request again.",
        )
    return HTTPException(500, "The gallery could not be changed; see its log.")
