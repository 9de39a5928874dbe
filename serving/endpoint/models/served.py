"""Find the version of a model that a request means, and report states of versions.

One table for every protocol: `WatchedModels` changes it, requests read it. Nothing
here loads a model or waits for anything, so a request is never held up by a swap.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...web.status import StatusCode, StatusError
from .servable import Servable
from .version_states import (
    ModelVersions,
    VersionCopy,
    VersionState,
    VersionStatus,
)

_MOST_ENDED_MODELS = 100
"""Removed models whose status is still reported; older ones are forgotten."""


class ServedModels:
    """The models of a server: versions, their states, and who uses them.

    All methods may be called from several threads.

    Args:
        servables: Versions that are available from the start, for a server whose
            models do not change.
    """

    def __init__(self, servables: Iterable[Servable] = ()) -> None:
        # Reentrant: the garbage collector may end an abandoned lease at any place.
        self._lock = threading.RLock()
        self._models: dict[str, ModelVersions] = {}
        self._on_idle: Callable[[], None] = lambda: None
        servables = list(servables)
        self.configure({servable.name: {} for servable in servables})
        for servable in servables:
            self.make_available(servable)

    @contextlib.contextmanager
    def lease(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[Servable]:
        """Hold a version for the length of a `with` block, so that it stays loaded.

        Does not wait. The block may be left in another thread than it was entered.

        Args:
            name: Name of the model.
            version: Which version. By default the highest available one.
            label: Label of the version, instead of its number.

        Yields:
            The version.

        Raises:
            StatusError: It is not available, with TF Serving's text.
        """
        copy, servable = self._take(name, version, label)
        try:
            yield servable
        finally:
            # The frame of a generator that an exception left may live on in a
            # traceback, and must not keep the model in memory.
            del servable
            self._leave(copy)

    def status(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Any:
        """Return the state of a version or of all versions, the newest first.

        Args:
            name: Name of the model.
            version: Which version. By default all of them.
            label: Label of the version, instead of its number.

        Returns:
            A `GetModelStatusResponse`.

        Raises:
            StatusError: The server knows no such version, with TF Serving's text.
        """
        from .info import model_status

        with self._lock:
            model = self._models.get(name, ModelVersions())
            if label is not None:
                version = model.with_label(label)
            statuses = [
                copy.status
                for number, copy in model.current.items()
                if version in (None, number)
            ]
        if not statuses:
            missing = (
                "any versions" if version is None else f"version {version}"
            ) + f" of model {name}"
            raise StatusError(StatusCode.NOT_FOUND, f"Could not find {missing}")
        return model_status(statuses)

    def names(self) -> list[str]:
        """Return the names of the configured models, sorted."""
        with self._lock:
            return sorted(
                name for name, model in self._models.items() if model.is_configured
            )

    def configure(self, labels: Mapping[str, Mapping[str, int]]) -> None:
        """Set which models there are, and their labels.

        A model that is not among them keeps its versions until they are unloaded.

        Args:
            labels: For each model that is configured, the version of each label.
        """
        with self._lock:
            for name in labels:
                self._models.setdefault(name, ModelVersions())
            for name, model in list(self._models.items()):
                if model.is_configured and name not in labels:
                    self._put_last(name)
                model.is_configured = name in labels
                model.labels = dict(labels.get(name, {}))

    def set_state(self, name: str, status: VersionStatus) -> None:
        """Record how far a version has come, or why it failed.

        An available version stays available, whatever becomes of another copy of it.

        Args:
            name: Name of the model.
            status: The version and its state: START, LOADING or END.
        """
        with self._lock:
            model = self._models.setdefault(name, ModelVersions())
            if not model.is_configured:
                self._put_last(name)
            if status.version not in model.available():
                model.put(VersionCopy(status))

    def make_available(self, servable: Servable) -> None:
        """Answer requests with this version from now on.

        A copy of the same version that is loaded serves its users until they leave.
        """
        status = VersionStatus(servable.version, VersionState.AVAILABLE)
        with self._lock:
            model = self._models.setdefault(servable.name, ModelVersions())
            model.put(VersionCopy(status, servable))
            model.was_available = True
        self._on_idle()

    def unload(self, name: str, version: int) -> None:
        """Take no more requests for an available version; its users may finish."""
        with self._lock:
            model = self._models[name]
            model.current[version].status = VersionStatus(
                version, VersionState.UNLOADING
            )
            model.update()
        self._on_idle()

    def collect_idle(self) -> list[Servable]:
        """Let go of the versions that are unloading and have no users any more.

        Also forgets models that are no longer configured once there are too many, the
        one that went first before the others.

        Returns:
            Their servables. The memory is free when the caller drops them.
        """
        with self._lock:
            servables = [
                servable
                for model in self._models.values()
                for servable in model.take_idle()
            ]
            ended = [name for name, model in self._models.items() if model.has_ended()]
            for name in ended[:-_MOST_ENDED_MODELS]:
                del self._models[name]
        return servables

    def available_versions(self, name: str) -> set[int]:
        """Return the versions of a model that requests can reach."""
        with self._lock:
            return self._models.get(name, ModelVersions()).available()

    def call_when_idle(self, on_idle: Callable[[], None]) -> None:
        """Set what is called when `collect_idle` may find something.

        It is called in the threads of requests, so it must be short and not raise.
        """
        self._on_idle = on_idle

    def _take(
        self, name: str, version: int | None, label: str | None
    ) -> tuple[VersionCopy, Servable]:
        if not name:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified."
            )
        with self._lock:
            model = self._models.get(name, ModelVersions())
            if model.is_configured and not model.was_available:
                raise StatusError(
                    StatusCode.UNAVAILABLE, "The model is still being loaded. Retry."
                )
            if label is not None:
                version = model.with_label(label)
            wanted = model.latest if version is None else version
            copy = None if wanted is None else model.current.get(wanted)
            if (
                copy is None
                or copy.servable is None
                or copy.status.state != VersionState.AVAILABLE
            ):
                sought = (
                    f"Latest({name})"
                    if version is None
                    else f"Specific({name}, {version})"
                )
                raise StatusError(
                    StatusCode.NOT_FOUND, f"Servable not found for request: {sought}"
                )
            copy.users += 1
            return copy, copy.servable

    def _leave(self, copy: VersionCopy) -> None:
        with self._lock:
            copy.users -= 1
            may_go = copy.may_go()
        if may_go:
            self._on_idle()

    def _put_last(self, name: str) -> None:
        """Put a model behind all others, so that `collect_idle` knows when it went."""
        self._models[name] = self._models.pop(name)
