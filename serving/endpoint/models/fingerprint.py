"""Load a version only if its files are those that were exported."""

from pathlib import Path

from tfdml.messages import shown
from tfdml.model_version import DESCRIPTION_FILE, IMAGES_AT_ONCE, read_description

from ...web.status import StatusCode, StatusError
from .saved_model import has_graph, model_fingerprint
from .servable import MAP_FN_AT_ONCE, Servable


def load_unchecked(name: str, version: int, folder: Path) -> Servable:
    """Load a version as it is. For the arguments and errors see `load_checked`."""
    try:
        is_ours = read_description(folder) is not None
    except ValueError:
        is_ours = False
    return Servable(name, version, folder, images_at_once=_at_once(is_ours))


def load_checked(name: str, version: int, folder: Path) -> Servable:
    """Load a version, and compare its files with the fingerprint that it came with.

    A changed constant of the graph loads without a word and gives other embeddings. A
    model without a fingerprint, such as one of other programs, is loaded as it is.

    Args:
        name: Name under which the model is served.
        version: Number of the version.
        folder: Folder that holds `saved_model.pb`.

    Returns:
        The version, which knows the fingerprint of its files.

    Raises:
        StatusError: DATA_LOSS; the files, or the description, are not as exported.
        ValueError: As `Servable`.
    """
    if not has_graph(folder):
        return Servable(name, version, folder)  # which says what is missing
    found = model_fingerprint(folder)
    try:
        description = read_description(folder)
    except ValueError as error:
        raise _changed(name, version, str(error)) from error
    exported = None if description is None else description.get("fingerprint")
    if exported is not None and exported != found:
        raise _changed(
            name,
            version,
            f"the graph and weights in {folder} must have the fingerprint "
            f"{shown(exported)} that {DESCRIPTION_FILE} names. Received: "
            f"{shown(found)}.",
        )
    at_once = _at_once(description is not None)
    return Servable(name, version, folder, fingerprint=found, images_at_once=at_once)


def _at_once(is_ours: bool) -> int:
    return IMAGES_AT_ONCE if is_ours else MAP_FN_AT_ONCE


def _changed(name: str, version: int, reason: str) -> StatusError:
    return StatusError(
        StatusCode.DATA_LOSS,
        f"Version {version} of model {shown(name)} has changed since its export: "
        f"{reason} Copy it again, or start with --no-fingerprint-check if the change "
        "was meant.",
    )
