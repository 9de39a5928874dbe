"""Which version of which model a gRPC call means, and what state each one is in."""

from collections.abc import Iterable
from typing import Any, NoReturn

from serving.json_tensor import refuse
from serving.model_info import status_response
from serving.saved_model import ModelVersion
from serving.servable import Servable, ServableError, StatusCode

__all__ = ["ServedModels"]


class ServedModels:
    """The models of a server, from the moment that it knows their names.

    Args:
        loading: The versions that will be loaded. Until `loaded` is called, calls for
            a model are answered as unavailable.
    """

    def __init__(self, loading: Iterable[ModelVersion] = ()) -> None:
        self._loading = list(loading)
        self._versions: dict[str, dict[int, Servable]] = {}
        self._is_loaded = False

    def loaded(self, servables: Iterable[Servable]) -> None:
        """Answer for these versions from now on."""
        versions: dict[str, dict[int, Servable]] = {}
        for servable in servables:
            versions.setdefault(servable.name, {})[servable.version] = servable
        self._versions = versions
        self._loading = []
        self._is_loaded = True

    def find(self, message: Any) -> Servable:
        """Find the version that the `model_spec` of a request means.

        Args:
            message: A request, or a task of one, with the field `model_spec`.

        Returns:
            The version that is named, or else the highest one.

        Raises:
            ServableError: There is none, with TF Serving's text.
        """
        spec = _spec(message)
        if not spec.name:
            refuse("ModelSpec has no name specified.")
        if not self._is_loaded:
            raise ServableError(
                StatusCode.UNAVAILABLE, "The model is still being loaded. Retry."
            )
        versions = self._versions.get(spec.name, {})
        choice = spec.WhichOneof("version_choice")
        if choice == "version_label":
            _refuse_label(spec.version_label)
        if choice == "version":
            wanted = spec.version.value
            sought = f"Specific({spec.name}, {wanted})"
        else:
            wanted = max(versions, default=None)
            sought = f"Latest({spec.name})"
        if wanted not in versions:
            refuse(f"Servable not found for request: {sought}", StatusCode.NOT_FOUND)
        return versions[wanted]

    def status(self, request: Any) -> Any:
        """Answer a `GetModelStatusRequest`.

        Returns:
            A `GetModelStatusResponse` with the version that is named, or all of them.

        Raises:
            ServableError: There is none, with TF Serving's text.
        """
        from tensorflow_serving.apis import get_model_status_pb2

        spec = _spec(request)
        if spec.WhichOneof("version_choice") == "version_label":
            _refuse_label(spec.version_label)
        response = status_response(self._versions.get(spec.name, {}).values())
        for model in self._loading:
            if model.name == spec.name:
                response.model_version_status.add(
                    version=model.version,
                    state=get_model_status_pb2.ModelVersionStatus.LOADING,
                ).status.SetInParent()
        if spec.HasField("version"):
            version = spec.version.value
            for status in list(response.model_version_status):
                if status.version != version:
                    response.model_version_status.remove(status)
            missing = f"Could not find version {version} of model {spec.name}"
        else:
            missing = f"Could not find any versions of model {spec.name}"
        if not response.model_version_status:
            refuse(missing, StatusCode.NOT_FOUND)
        return response


def _spec(message: Any) -> Any:
    if not message.HasField("model_spec"):
        refuse("Missing ModelSpec")
    return message.model_spec


def _refuse_label(label: str) -> NoReturn:
    refuse(f"Unrecognized servable version label: {label}")
