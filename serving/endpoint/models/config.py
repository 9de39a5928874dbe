"""Read and check TF Serving's `models.config`: which models are served.

Texts of errors that TF Serving has too are TF Serving's, because clients see them when
they change the models of a running server.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.messages import cut, shown

from ...storage.remote_folder import RemoteFolder, is_remote

_PLATFORM = "tensorflow"
_LARGEST_VERSION = 2**63 - 1


@dataclass(frozen=True)
class LatestVersions:
    """Serve the versions with the highest numbers.

    Args:
        count: How many, at least 1.

    Raises:
        ValueError: `count` is out of range.
    """

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"`count` must be at least 1. Received: {self.count}.")

    def wanted(
        self, versions: Set[int], is_complete: Callable[[int], bool]
    ) -> set[int]:
        """Choose among the versions that have a folder, asking as few as possible."""
        complete = filter(is_complete, sorted(versions, reverse=True))
        return set(itertools.islice(complete, self.count))


@dataclass(frozen=True)
class AllVersions:
    """Serve every version that there is."""

    def wanted(
        self, versions: Set[int], is_complete: Callable[[int], bool]
    ) -> set[int]:
        """Choose among the versions that have a folder."""
        return set(filter(is_complete, versions))


@dataclass(frozen=True)
class SpecificVersions:
    """Serve the versions that are named.

    Args:
        versions: Their numbers, at least one, each at least 0.

    Raises:
        ValueError: There is none, or a number is out of range.
    """

    versions: frozenset[int]

    def __post_init__(self) -> None:
        if not self.versions:
            raise ValueError("`specific` must name at least one version.")
        _check_versions("versions", self.versions)

    def wanted(
        self, versions: Set[int], is_complete: Callable[[int], bool]
    ) -> set[int]:
        """Choose among the versions that have a folder."""
        return set(filter(is_complete, self.versions.intersection(versions)))


VersionPolicy = LatestVersions | AllVersions | SpecificVersions


@dataclass(frozen=True)
class ModelConfig:
    """One model that is served.

    Args:
        name: Name in addresses and requests; without "/" and ":".
        base_path: Absolute path of the folder with one numbered folder per version, or
            such a folder in the cloud.
        policy: Which versions of it are served.
        labels: Version of each label; labels are made of letters, digits and "_".

    Raises:
        ValueError: An argument breaks its rule.
    """

    name: str
    base_path: Path | RemoteFolder
    policy: VersionPolicy = field(default_factory=LatestVersions)
    labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch("[^/:]+", self.name):
            raise ValueError(
                "The `name` of a model must have at least one character and neither "
                f"'/' nor ':'. Received: name={shown(self.name)}."
            )
        if isinstance(self.base_path, Path) and not self.base_path.is_absolute():
            raise ValueError(
                f"Expected model {self.name} to have an absolute path or URI; got "
                f"base_path()={self.base_path}"
            )
        for label in self.labels:
            if not re.fullmatch(r"\w+", label):
                raise ValueError(
                    f"A label of model {self.name} must be made of letters, digits and "
                    f"'_'. Received: {shown(label)}."
                )
        _check_versions(f"version_labels of model {self.name}", self.labels.values())


def single_model(name: str, base_path: str | PathLike[str]) -> ModelConfig:
    """Configure a model whose latest version is served.

    Args:
        name: Name in addresses and requests.
        base_path: Folder with one numbered folder per version, or its address in the
            cloud; a relative path starts at the current folder.

    Returns:
        The configuration.

    Raises:
        ValueError: The name cannot stand in an address, or the address of the base path
            is of no cloud that can be read.
    """
    if not is_remote(base_path):
        base_path = os.path.abspath(base_path)
    return ModelConfig(name, _base_path(os.fspath(base_path)))


def parse_model_configs(content: bytes, file: str | PathLike[str]) -> list[ModelConfig]:
    """Read the content of a `models.config`: a `ModelServerConfig` in text format.

    Args:
        content: What the file holds, UTF-8. `ConfigWatch` compares it with what the
            file holds later, so it is read once and parsed from here.
        file: The file, for the error.

    Returns:
        The models, in the order of the file.

    Raises:
        ValueError: It is not such a message, or a model breaks a rule.
    """
    from tensorflow_serving.config import model_server_config_pb2

    from ...web.config_messages import parse_text_message

    message = parse_text_message(
        content, file, model_server_config_pb2.ModelServerConfig
    )
    try:
        return model_configs_of(message)
    except ValueError as error:
        raise ValueError(f"{cut(file)}: {error}") from error


def model_configs_of(message: Any) -> list[ModelConfig]:
    """Read and check a `ModelServerConfig`.

    Args:
        message: The message. A policy that is missing means the latest version, as does
            `num_versions: 0`, which looks the same as a missing one.

    Returns:
        The models, in the order of the message.

    Raises:
        ValueError: It has no `model_config_list`, or a model breaks a rule.
    """
    if message.WhichOneof("config") != "model_config_list":
        raise ValueError(
            "The configuration must have a `model_config_list`. Received: "
            f"{message.WhichOneof('config') or 'an empty one'}."
        )
    configs = [_model_config(model) for model in message.model_config_list.config]
    unique_by_name(configs)
    return configs


def unique_by_name(configs: Iterable[ModelConfig]) -> dict[str, ModelConfig]:
    """Return the configurations by the names of their models.

    Raises:
        ValueError: Two have the same name.
    """
    by_name: dict[str, ModelConfig] = {}
    for config in configs:
        if config.name in by_name:
            raise ValueError(
                f"Illegal to list model {config.name} multiple times in config list"
            )
        by_name[config.name] = config
    return by_name


def _model_config(message: Any) -> ModelConfig:
    platform = message.model_platform
    if message.model_type:
        raise ValueError(
            f"Model {message.name} must be given by `model_platform`; `model_type` is "
            "not supported, and TF Serving has long replaced it."
        )
    if platform not in ("", _PLATFORM):
        raise ValueError(
            f"Model {message.name} requests unsupported platform {platform}"
        )
    if message.HasField("logging_config"):
        raise ValueError(
            f"Model {message.name} must not have a `logging_config`: this server does "
            "not record requests. Remove it."
        )
    try:
        policy = _policy(message.model_version_policy)
    except ValueError as error:
        raise ValueError(
            f"`model_version_policy` of model {message.name}: {error}"
        ) from error
    return ModelConfig(
        message.name,
        _base_path(message.base_path),
        policy,
        dict(message.version_labels),
    )


def _base_path(text: str) -> Path | RemoteFolder:
    return RemoteFolder(text) if is_remote(text) else Path(text)


def _policy(message: Any) -> VersionPolicy:
    choice = message.WhichOneof("policy_choice")
    if choice == "all":
        return AllVersions()
    if choice == "specific":
        return SpecificVersions(frozenset(message.specific.versions))
    return LatestVersions(message.latest.num_versions or 1)


def _check_versions(name: str, versions: Iterable[int]) -> None:
    for version in versions:
        if not 0 <= version <= _LARGEST_VERSION:
            raise ValueError(
                f"`{name}` must be at least 0 and fit 64 bits. Received: {version}."
            )
