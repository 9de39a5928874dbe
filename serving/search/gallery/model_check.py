"""Check that an endpoint serves the model that built an index."""

import numpy as np

from serving.search.gallery.image_search import ImageSearch
from serving.search.gallery.items import Item

_PROBES = 5
_SAME_IMAGE = 0.99


class MismatchError(ValueError):
    """The endpoint serves another model than the one that built the index."""


def check_model(search: ImageSearch) -> None:
    """Check that the endpoint's model is the one that built the index.

    TF Serving's protocol reports the name, version and dimension of a model, not its
    weights. So a few images of the gallery are embedded again: most of the results must
    equal the embeddings in the index.

    Raises:
        MismatchError: It is another model.
        FileNotFoundError: The images are gone.
        EndpointError: The endpoint did not answer.
    """
    served = search.client.metadata()
    stored = search.gallery
    remedy = "Serve that model, or build the index again with the one served."
    if served.dimension not in (None, search.index.dimension):
        raise MismatchError(
            f"The index holds embeddings of dimension {search.index.dimension}, the "
            f"model at {search.client.url} returns {served.dimension}. {remedy}"
        )
    if served.version not in (None, stored.model_version):
        raise MismatchError(
            f"The index was built with version {stored.model_version} of model "
            f"{stored.model_name!r}, {search.client.url} serves version "
            f"{served.version}. {remedy}"
        )
    probes = _probes(search)
    files = {item.id: search.file(item) for item in probes}
    there = {id_: file for id_, file in files.items() if file.is_file()}
    if probes and not there:
        raise FileNotFoundError(
            f"The images of the gallery are not in {str(stored.root)!r}. Name the "
            "folder where they are now with `--images`."
        )
    if not there:
        return
    rows = search.client.embed(list(there.values()))
    known = search.index.get(list(there)).embeddings
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(known, axis=1)
    cosines = np.einsum("nd,nd->n", rows, known) / lengths
    # The median, because some images may have been replaced since.
    if not np.median(cosines) >= _SAME_IMAGE:
        raise MismatchError(
            f"The model at {search.client.url} is not the one that built the index: "
            "images of the gallery do not find themselves (similarity "
            f"{np.median(cosines):.3f}, not 1). {remedy}"
        )


def _probes(search: ImageSearch) -> list[Item]:
    ids = search.listing.ids()
    last = len(ids) - 1
    rows = sorted({round(last * part / (_PROBES - 1)) for part in range(_PROBES)})
    return search.items(ids[rows].tolist()) if len(ids) else []
