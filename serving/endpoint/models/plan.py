"""Compare the configuration of a model with its folder on disk.

Nothing here changes anything; `WatchedModels` acts on it.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from ...web.status import StatusCode, StatusError
from .config import LatestVersions, ModelConfig
from .saved_model import find_version_folders, has_graph


@dataclass(frozen=True)
class ModelPlan:
    """The versions that a model should have in memory.

    Attributes:
        folders: Folder of each version on disk.
        wanted: Complete versions that the policy chooses.
        expected: These, and incomplete ones that it will choose.
        to_load: Wanted versions that are not loaded from their folders, newest first.
    """

    folders: Mapping[int, Path]
    wanted: Set[int]
    expected: Set[int]
    to_load: list[int]


def plan_model(
    config: ModelConfig,
    loaded: Mapping[int, Path],
    place: Callable[[ModelConfig], Path],
) -> ModelPlan:
    """Look at the base path of a model.

    Args:
        config: The model.
        loaded: Its available versions, and the folders that they were loaded from.
        place: Returns its base path on this machine.

    Returns:
        What it calls for.

    Raises:
        OSError: The base path cannot be read.
    """
    folders = find_version_folders(place(config))

    def is_loaded(version: int) -> bool:
        return loaded.get(version) == folders[version]

    def is_complete(version: int) -> bool:
        return is_loaded(version) or has_graph(folders[version])

    wanted = config.policy.wanted(folders.keys(), is_complete)
    expected = wanted | config.policy.wanted(folders.keys(), lambda version: True)
    to_load = [
        version for version in sorted(wanted, reverse=True) if not is_loaded(version)
    ]
    return ModelPlan(folders, wanted, expected, to_load)


def older_versions(config: ModelConfig, plan: ModelPlan) -> list[int]:
    """Return what may serve where no wanted version can be loaded, newest first.

    Args:
        config: The model.
        plan: What it calls for.

    Returns:
        Complete versions that are not wanted; none where the policy does not just want
        the latest ones.
    """
    if not isinstance(config.policy, LatestVersions):
        return []
    return [
        version
        for version in sorted(plan.folders.keys() - plan.wanted, reverse=True)
        if has_graph(plan.folders[version])
    ]


def plan_or_refuse(
    config: ModelConfig,
    loaded: Mapping[int, Path],
    place: Callable[[ModelConfig], Path],
) -> ModelPlan:
    """Look at the base path of a model that has to have a version.

    Raises:
        StatusError: The base path cannot be read, or has no version that the policy
            wants.
    """
    try:
        plan = plan_model(config, loaded, place)
    except OSError as error:
        raise StatusError(
            StatusCode.INVALID_ARGUMENT,
            f"Could not find base path {config.base_path} for servable {config.name} "
            f"with error {error}",
        ) from error
    if not plan.wanted:
        raise StatusError(StatusCode.NOT_FOUND, no_version_text(config))
    return plan


def no_version_text(config: ModelConfig) -> str:
    """Return the error of a base path that has no version its policy wants."""
    return (
        f"Unable to find a numerical version path for servable {config.name} at: "
        f"{config.base_path}"
    )


def check_labels(config: ModelConfig, versions: Set[int]) -> None:
    """Refuse labels of versions that are not available.

    Args:
        config: The model.
        versions: Its versions that are available, or will be.

    Raises:
        StatusError: A label points at another version.
    """
    for version in sorted(config.labels.values()):
        if version not in versions:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"Request to assign label to version {version} of model {config.name}, "
                "which is not currently available for inference",
            )


def versions_to_unload(
    available: Set[int], expected: Set[int], on_disk: Set[int]
) -> set[int]:
    """Decide which available versions of a model may go.

    For each expected version that is not available, one that is not expected stays:
    the newest on disk. One that is no longer on disk stays only where the model would
    otherwise have none. If no version is expected, all go.

    Args:
        available: Versions that answer requests.
        expected: Versions that the policy chooses, those that are still being copied
            included.
        on_disk: Versions that have a folder.

    Returns:
        Some of the available versions that are not expected.
    """
    others = set(available) - set(expected)
    candidates = others & on_disk
    if not candidates and not expected & available:
        candidates = others
    missing = len(expected - available)
    return others - set(sorted(candidates, reverse=True)[:missing])
