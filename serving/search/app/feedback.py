"""Answer the call by which users say whether a hit is right or wrong."""

import io
import logging
from os import PathLike

from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tfdml.files import DISK_IS_FULL
from tfdml.images import read_image
from tfdml.messages import shown

from ..gallery.feedback import Feedback, RatedImage, Rating
from ..gallery.image_search import ImageSearch
from ..gallery.uploads import Crop, check_upload
from .errors import errors_of_image, refuse
from .requests import RequestReader
from .service import SearchService

_log = logging.getLogger(__name__)
_VERDICTS = {"right": True, "wrong": False}


class GalleryFeedback:
    """Keep what users say about hits.

    Args:
        service: Knows the galleries.
        reader: Reads the requests.
        folder: Where it is kept; None if nothing is.
    """

    def __init__(
        self,
        service: SearchService,
        reader: RequestReader,
        folder: str | PathLike[str] | None,
    ) -> None:
        self._service = service
        self._reader = reader
        self._feedback = None if folder is None else Feedback(folder)

    async def rate(self, request: Request) -> Response:
        """Keep one rating."""
        feedback = self._feedback
        if feedback is None:
            raise HTTPException(
                403,
                "This service keeps no feedback: start it with `--feedback FOLDER`.",
            )
        search = self._service.search_of(request)
        content, crop, fields = await self._reader.pair(request, {"verdict"})
        verdict = fields.get("verdict", "")
        if verdict not in _VERDICTS:
            refuse(f"`verdict` must be right or wrong. Received: {shown(verdict)}.")

        def rate() -> int:
            if content is None:
                query = _of_gallery(feedback, search, fields["id"], crop)
            else:
                suffix = check_upload(content, search.max_pixels)
                query = RatedImage(_kept(feedback, search, content, suffix, crop))
            hit = _of_gallery(feedback, search, fields["hit"], None)
            if query.file == hit.file:
                refuse("The query and `hit` are the same image.")
            return feedback.add(Rating(query, hit, _VERDICTS[verdict]))

        try:
            count = await self._service.drawing.run(rate)
        except OSError as error:
            raise _failed(error) from error
        return JSONResponse({"verdict": verdict, "ratings": count}, 201)


def _of_gallery(
    feedback: Feedback, search: ImageSearch, id_: str, crop: Crop | None
) -> RatedImage:
    with errors_of_image(id_):
        item = search.item(id_)
        file = search.file(item)
        content = file.read_bytes()
    name = _kept(feedback, search, content, file.suffix, crop)
    return RatedImage(name, item.id, item.class_name)


def _kept(
    feedback: Feedback,
    search: ImageSearch,
    content: bytes,
    suffix: str,
    crop: Crop | None,
) -> str:
    if crop is None:
        return feedback.keep(content, suffix)
    with search.decoding(content):
        region = crop.cut(read_image(content, max_pixels=None))
        cut = io.BytesIO()
        Image.fromarray(region).save(cut, "PNG")
    return feedback.keep(cut.getvalue(), "png")


def _failed(error: OSError) -> HTTPException:
    _log.error("The feedback could not be kept: %s", error)
    if error.errno in DISK_IS_FULL:
        return HTTPException(
            507, "Nothing was kept: the disk of the feedback is full. Make room first."
        )
    return HTTPException(500, "The feedback could not be kept; see the log.")
