"""Find the version that the `model_spec` of a gRPC call means."""

import contextlib
from collections.abc import Iterator
from typing import Any

from ...web.observer import Observed
from ...web.status import refuse
from ..models.servable import Servable
from ..models.served import ServedModels


@contextlib.contextmanager
def lease(models: ServedModels, message: Any, observed: Observed) -> Iterator[Servable]:
    """Hold the version that a message means, while the block runs.

    Args:
        models: What is served.
        message: A request, or a task of one, with the field `model_spec`.
        observed: Takes name and version.

    Raises:
        StatusError: There is none, with TF Serving's text.
    """
    spec = _spec(message)
    if not spec.name:
        refuse("ModelSpec has no name specified.")
    observed.model = spec.name
    observed.version, label = _choice(spec)
    with models.lease(spec.name, observed.version, label) as servable:
        observed.answered_by(servable)
        yield servable


def status(models: ServedModels, request: Any, observed: Observed) -> Any:
    """Answer a `GetModelStatusRequest`.

    Args:
        models: What is served.
        request: The request.
        observed: Takes name and version.

    Returns:
        A `GetModelStatusResponse` with the version that is named, or all of them.

    Raises:
        StatusError: There is none, with TF Serving's text.
    """
    spec = _spec(request)
    observed.model = spec.name
    observed.version, label = _choice(spec)
    return models.status(spec.name, observed.version, label)


def _spec(message: Any) -> Any:
    if not message.HasField("model_spec"):
        refuse("Missing ModelSpec")
    return message.model_spec


def _choice(spec: Any) -> tuple[int | None, str | None]:
    choice = spec.WhichOneof("version_choice")
    return (
        spec.version.value if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
    )
