"""Keep the states of the versions of one model, and who uses them.

Nothing here takes a lock: `ServedModels` holds its own.
"""

import enum
from dataclasses import dataclass, field

from ...web.status import StatusCode, StatusError
from .servable import Servable

_MOST_ENDED = 100
"""Ended versions of a model that its status still lists; older ones are forgotten."""


class VersionState(enum.IntEnum):
    """The states of a version, with the numbers of TF Serving's protocol."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(frozen=True)
class VersionStatus:
    """The status of one version.

    Attributes:
        version: Number of the version.
        state: Its state.
        error_code: OK, or why it could not be loaded.
        error_message: The same in words; empty if nothing failed.
    """

    version: int
    state: VersionState
    error_code: StatusCode = StatusCode.OK
    error_message: str = ""


@dataclass(eq=False)
class VersionCopy:
    """One loaded copy of a version, or what is left of it.

    Attributes:
        status: What is reported of it.
        servable: The version itself, while it is in memory.
        users: Leases of it.
        is_replaced: Whether another copy of the same version answers instead.
    """

    status: VersionStatus
    servable: Servable | None = None
    users: int = 0
    is_replaced: bool = False

    def may_go(self) -> bool:
        """Return whether it is in memory, though nobody uses it or will."""
        is_leaving = self.is_replaced or self.status.state == VersionState.UNLOADING
        return is_leaving and self.users == 0 and self.servable is not None


@dataclass
class ModelVersions:
    """The versions of one model.

    Attributes:
        current: The copy of each version that its status lists, oldest entry first.
        replaced: Copies in memory that another copy of the same version has replaced.
        labels: Version of each label.
        latest: The highest available version, if there is one.
        is_configured: Whether the configuration names the model.
        was_available: Whether a version of it has ever been available.
    """

    current: dict[int, VersionCopy] = field(default_factory=dict)
    replaced: list[VersionCopy] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    latest: int | None = None
    is_configured: bool = False
    was_available: bool = False

    def with_label(self, label: str) -> int:
        """Return the version of a label.

        Raises:
            StatusError: There is no such label.
        """
        if label not in self.labels:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"Unrecognized servable version label: {label}",
            )
        return self.labels[label]

    def put(self, copy: VersionCopy) -> None:
        """Let a copy represent its version, in place of the present one."""
        old = self.current.pop(copy.status.version, None)
        if old is not None and old.servable is not None:
            old.is_replaced = True
            self.replaced.append(old)
        self.current[copy.status.version] = copy
        self.update()

    def update(self) -> None:
        """Find the latest version, and forget the oldest of too many that ended."""
        self.latest = max(self.available(), default=None)
        ended = [
            version
            for version, copy in self.current.items()
            if copy.status.state == VersionState.END
        ]
        for version in ended[:-_MOST_ENDED]:
            del self.current[version]

    def available(self) -> set[int]:
        """Return the versions that requests can reach."""
        return {
            version
            for version, copy in self.current.items()
            if copy.status.state == VersionState.AVAILABLE
        }

    def take_idle(self) -> list[Servable]:
        """Let go of the copies that are leaving and have no users any more."""
        idle = [
            copy for copy in (*self.current.values(), *self.replaced) if copy.may_go()
        ]
        servables = [copy.servable for copy in idle if copy.servable is not None]
        for copy in idle:
            if not copy.is_replaced:
                copy.status = VersionStatus(copy.status.version, VersionState.END)
            copy.servable = None
        self.replaced = [copy for copy in self.replaced if copy.servable is not None]
        self.update()
        return servables

    def has_ended(self) -> bool:
        """Return whether nothing is left of a model that is not configured."""
        return not (self.is_configured or self.replaced) and all(
            copy.status.state == VersionState.END for copy in self.current.values()
        )
