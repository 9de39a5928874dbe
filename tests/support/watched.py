"""Models on disk that are loaded, replaced and broken, most of them without content."""

import shutil
import time

import pytest

from serving.endpoint.models.version_states import VersionState
from serving.web.status import StatusCode, StatusError

WAIT_SECONDS = 60


class FakeModel:
    """What states, labels and leases need of a `Servable`."""

    fingerprint = None

    def __init__(self, name, version, folder):
        graph = folder / "saved_model.pb"
        if graph.read_bytes() != b"graph" or not (folder / "variables").is_dir():
            raise ValueError(f"Version {version} of {name!r} in {folder} is broken.")
        self.name, self.version = name, version


def write_fake_model(folder):
    """Write the folder of a version that `FakeModel` loads."""
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    return folder


def damage(base, version):
    """Make a version one that cannot be loaded."""
    (base / str(version) / "saved_model.pb").write_bytes(b"\x0f")


def started(watched):
    watched.start()
    return watched


def add(example, base, version):
    shutil.copytree(example, base / str(version))


def poll(watched):
    """Look twice: a version is taken up when its files have not changed between."""
    watched.poll_now()
    watched.poll_now()


def states(watched, name="m"):
    return {
        status.version: VersionState(status.state).name
        for status in watched.served.status(name).model_version_status
    }


def error_of(watched, version, name="m"):
    (status,) = watched.served.status(name, version).model_version_status
    return StatusCode(status.status.error_code), status.status.error_message


def latest(watched, name="m"):
    with watched.served.lease(name) as servable:
        return servable.version


def refusal(watched, *configs):
    with pytest.raises(StatusError) as caught:
        watched.reload(configs)
    return caught.value.code, caught.value.message


def wait_until(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The condition has not come true.")
        time.sleep(0.005)
