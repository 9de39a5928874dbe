import contextlib
import gc
import logging
import shutil
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from serving.endpoint.models.config import (
    AllVersions,
    LatestVersions,
    ModelConfig,
    SpecificVersions,
    parse_model_configs,
    single_model,
)
from serving.endpoint.models.config_watch import ConfigWatch
from serving.endpoint.models.plan import versions_to_unload
from serving.endpoint.models.saved_model import find_version_folders, folder_stamp
from serving.endpoint.models.servable import Servable
from serving.endpoint.models.version_states import VersionState
from serving.endpoint.models.watched import WatchedModels
from serving.endpoint.warm_up import warm_up, write_warm_up_requests
from serving.web.status import StatusCode, StatusError
from tests.support.example_model import png

WAIT_SECONDS = 60


class FakeModel:
    """What states, labels and leases need of a `Servable`."""

    def __init__(self, name, version, folder):
        graph = folder / "saved_model.pb"
        if graph.read_bytes() != b"graph" or not (folder / "variables").is_dir():
            raise ValueError(f"Version {version} of {name!r} in {folder} is broken.")
        self.name, self.version = name, version


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The folder of a version that `FakeModel` loads."""
    folder = tmp_path_factory.mktemp("example") / "1"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    return folder


@pytest.fixture
def base(tmp_path, example):
    """A base path with version 1 of the fake model."""
    shutil.copytree(example, tmp_path / "m" / "1")
    return tmp_path / "m"


@pytest.fixture
def real_base(tmp_path, example_model):
    """A base path with version 1 of a real model."""
    shutil.copytree(example_model, tmp_path / "real" / "1")
    return tmp_path / "real"


@pytest.fixture
def managed():
    """Make models that are only looked for on disk when told, and close them."""
    made = []

    def make(*configs, **options):
        watched = WatchedModels(
            configs, **{"poll_seconds": 0, "load": FakeModel, **options}
        )
        made.append(watched)
        return watched

    yield make
    for watched in made:
        watched.close()


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


@pytest.fixture
def warming_up(managed, base, example):
    """Models of which version 2 warms up until the event beside them is set."""
    reached, go_on = threading.Event(), threading.Event()

    def warm_up(servable, folder):
        if servable.version == 2:
            reached.set()
            assert go_on.wait(WAIT_SECONDS)

    watched = started(
        managed(single_model("m", base), warm_up=warm_up, poll_seconds=0.01)
    )
    add(example, base, 2)
    assert reached.wait(WAIT_SECONDS)
    return watched, go_on


def test_start_returns_with_the_latest_version_available(managed, base, example):
    add(example, base, 3)
    (base / "notes").mkdir()
    (base / "7").touch()
    watched = managed(single_model("m", base))
    with pytest.raises(StatusError, match="still being loaded"):
        latest(watched)
    watched.start()
    assert latest(watched) == 3
    assert states(watched) == {3: "AVAILABLE"}


def test_the_thread_swaps_to_a_new_version_and_unloads_the_old_one(
    managed, base, example
):
    watched = started(managed(single_model("m", base), poll_seconds=0.01))
    add(example, base, 2)
    wait_until(lambda: states(watched) == {2: "AVAILABLE", 1: "END"})
    assert latest(watched) == 2


def test_no_request_fails_while_versions_are_swapped(managed, real_base, example_model):
    watched = started(managed(single_model("m", real_base), load=Servable))
    stop = threading.Event()
    failures, answered = [], []

    def ask():
        image = np.array([png(255, 0, 0)], object)
        count = 0
        while not stop.is_set():
            try:
                with watched.served.lease("m") as servable:
                    servable.predict({"image_bytes": image})
                count += 1
            except Exception as error:
                failures.append(error)
        answered.append(count)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for version in range(2, 6):
            add(example_model, real_base, version)
            poll(watched)
            shutil.rmtree(real_base / str(version - 1))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert len(answered) == 4
    assert min(answered) > 0
    assert latest(watched) == 5


def test_the_old_version_answers_until_the_new_one_has_been_warmed_up(warming_up):
    watched, go_on = warming_up
    assert states(watched) == {2: "LOADING", 1: "AVAILABLE"}
    assert latest(watched) == 1
    go_on.set()
    wait_until(lambda: latest(watched) == 2)


def test_a_version_is_unloaded_when_its_last_lease_ends(
    managed, real_base, example_model
):
    watched = started(managed(single_model("m", real_base), load=Servable))
    add(example_model, real_base, 2)
    with watched.served.lease("m") as servable:
        poll(watched)
        assert latest(watched) == 2
        assert states(watched) == {2: "AVAILABLE", 1: "UNLOADING"}
        images = np.array([png(255, 0, 0)], object)
        outputs = servable.predict({"image_bytes": images})
        assert outputs["embedding"].shape == (1, 4)
        gone = weakref.ref(servable)
        del servable
    wait_until(lambda: states(watched)[1] == "END")
    wait_until(lambda: gone() is None)


@pytest.mark.parametrize("harm", ["graph", "weights", "hook"])
def test_a_broken_version_never_replaces_a_good_one(
    managed, real_base, example_model, harm, caplog
):
    def warm_up(servable, folder):
        if servable.version == 2 and harm == "hook":
            raise StatusError(StatusCode.DATA_LOSS, "no answer")

    watched = started(
        managed(single_model("m", real_base), load=Servable, warm_up=warm_up)
    )
    add(example_model, real_base, 2)
    if harm == "graph":
        (real_base / "2" / "saved_model.pb").write_bytes(b"\x0fno model")
    if harm == "weights":
        shutil.rmtree(real_base / "2" / "variables")
    poll(watched)
    poll(watched)
    assert latest(watched) == 1
    assert states(watched) == {2: "END", 1: "AVAILABLE"}
    code, message = error_of(watched, 2)
    if harm == "hook":
        assert (code, message) == (StatusCode.DATA_LOSS, "no answer")
    else:
        assert code == StatusCode.INVALID_ARGUMENT
        assert "Version 2 of model 'm' cannot be loaded" in message
    with pytest.raises(StatusError, match=r"request: Specific\(m, 2\)"):
        watched.served.lease("m", 2).__enter__()
    assert message in caplog.text


def warm_up_request(content):
    request = predict_pb2.PredictRequest()
    request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([content]))
    return request


def test_a_failing_warm_up_request_keeps_its_version_out(
    managed, real_base, example_model
):
    runs = []
    watched = managed(
        single_model("m", real_base),
        load=Servable,
        warm_up=warm_up,
        on_warmed_up=lambda folder, seconds, error: runs.append(
            (folder, seconds >= 0, error)
        ),
    )
    write_warm_up_requests(real_base / "1", [warm_up_request(png(1, 2, 3))])
    watched.start()
    assert runs == [(real_base / "1", True, None)]
    add(example_model, real_base, 2)
    write_warm_up_requests(real_base / "2", [warm_up_request(b"no image")])
    poll(watched)
    assert latest(watched) == 1
    code, message = error_of(watched, 2)
    assert code == StatusCode.INVALID_ARGUMENT
    assert message.startswith("Warm-up record 1 in ")
    assert runs[1:] == [(real_base / "2", True, message)]
    add(example_model, real_base, 3)
    poll(watched)
    assert latest(watched) == 3
    assert len(runs) == 2  # version 3 has no requests


def test_a_version_after_a_broken_one_is_served(managed, base, example):
    watched = started(managed(single_model("m", base)))
    add(example, base, 2)
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f")
    poll(watched)
    add(example, base, 3)
    poll(watched)
    assert states(watched) == {3: "AVAILABLE", 2: "END", 1: "END"}


def test_a_broken_version_is_served_once_its_files_are_replaced(managed, base, example):
    watched = started(managed(single_model("m", base), load_retries=0))
    add(example, base, 2)
    whole = (base / "2" / "saved_model.pb").read_bytes()
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f" * len(whole))
    poll(watched)
    poll(watched)
    assert states(watched)[2] == "END"
    (base / "2" / "saved_model.pb").write_bytes(whole)
    poll(watched)
    assert states(watched) == {2: "AVAILABLE", 1: "END"}
    assert error_of(watched, 2) == (StatusCode.OK, "")


def test_a_broken_version_is_tried_again_as_often_as_set(managed, base, example):
    tried = []

    def load(name, version, folder):
        tried.append((name, version))
        if name == "m" and version == 2:
            raise OSError("no connection")
        return FakeModel(name, version, folder)

    other = base.parent / "other"
    add(example, other, 1)
    configs = [single_model("m", base), single_model("other", other)]
    watched = started(
        managed(*configs, load=load, load_retries=2, load_retry_seconds=0)
    )
    add(example, base, 2)
    add(example, other, 2)
    for _ in range(6):
        watched.poll_now()
    assert tried.count(("m", 2)) == 3
    assert tried.count(("other", 2)) == 1
    assert error_of(watched, 2) == (StatusCode.INTERNAL, "no connection")
    assert (latest(watched), latest(watched, "other")) == (1, 2)


def test_a_further_try_waits_and_holds_up_no_other_model(managed, base, example):
    tried = []

    def load(name, version, folder):
        tried.append((name, version))
        if name == "m" and version == 2:
            raise OSError("no connection")
        return FakeModel(name, version, folder)

    other = base.parent / "other"
    add(example, other, 1)
    configs = [single_model("m", base), single_model("other", other)]
    watched = started(managed(*configs, load=load, load_retry_seconds=3600))
    add(example, base, 2)
    poll(watched)
    add(example, other, 2)
    poll(watched)
    assert tried.count(("m", 2)) == 1
    assert latest(watched, "other") == 2


def test_a_folder_that_is_being_copied_is_left_alone(managed, base, example, caplog):
    watched = started(managed(single_model("m", base)))
    part = base / "2"
    shutil.copytree(example / "variables", part / "variables")
    poll(watched)
    assert states(watched) == {1: "AVAILABLE"}
    shutil.copy(example / "saved_model.pb", part)
    watched.poll_now()
    assert states(watched) == {2: "START", 1: "AVAILABLE"}
    (part / "assets.extra").mkdir()
    (part / "assets.extra" / "more").touch()
    watched.poll_now()
    assert states(watched) == {2: "START", 1: "AVAILABLE"}
    watched.poll_now()
    assert states(watched) == {2: "AVAILABLE", 1: "END"}
    assert not [
        record for record in caplog.records if record.levelno >= logging.WARNING
    ]


def test_a_copy_that_is_given_up_ends(managed, base, example):
    watched = started(managed(single_model("m", base)))
    add(example, base, 2)
    watched.poll_now()
    shutil.rmtree(base / "2")
    watched.poll_now()
    assert states(watched) == {2: "END", 1: "AVAILABLE"}


def test_the_old_version_serves_while_its_successor_is_being_copied(
    managed, base, example
):
    watched = started(managed(single_model("m", base)))
    shutil.rmtree(base / "1")
    (base / "2").mkdir()
    poll(watched)
    assert latest(watched) == 1
    shutil.copytree(example, base / "2", dirs_exist_ok=True)
    poll(watched)
    assert states(watched) == {2: "AVAILABLE", 1: "END"}


@pytest.mark.parametrize(
    ("policy", "before", "after"),
    [
        (LatestVersions(2), {1, 2}, {2, 5}),
        (AllVersions(), {1, 2}, {1, 2, 5}),
        (SpecificVersions(frozenset({1, 5, 6})), {1}, {1, 5}),
    ],
)
def test_each_policy_serves_its_versions(managed, base, example, policy, before, after):
    add(example, base, 2)
    watched = started(managed(ModelConfig("m", base, policy)))
    assert watched.served.available_versions("m") == before
    add(example, base, 5)
    poll(watched)
    assert watched.served.available_versions("m") == after


def test_a_version_that_is_removed_from_disk_is_unloaded(managed, base, example):
    add(example, base, 2)
    watched = started(managed(ModelConfig("m", base, AllVersions())))
    shutil.rmtree(base / "1")
    poll(watched)
    assert states(watched) == {2: "AVAILABLE", 1: "END"}


def test_the_version_before_comes_back_when_the_latest_is_removed(
    managed, base, example
):
    add(example, base, 2)
    watched = started(managed(single_model("m", base)))
    shutil.rmtree(base / "2")
    watched.poll_now()
    assert latest(watched) == 2
    watched.poll_now()
    assert states(watched) == {2: "END", 1: "AVAILABLE"}


def test_a_base_path_that_vanishes_leaves_what_is_served(managed, base, caplog):
    watched = started(managed(single_model("m", base)))
    base.rename(base.with_name("elsewhere"))
    for _ in range(3):
        poll(watched)
    assert latest(watched) == 1
    assert caplog.text.count("Model m stays as it is") == 1
    base.with_name("elsewhere").rename(base)
    poll(watched)
    assert states(watched) == {1: "AVAILABLE"}


@pytest.mark.parametrize(
    ("available", "expected", "on_disk", "unloaded"),
    [
        ({1}, {2}, {1, 2}, set()),  # 2 is broken, or not loaded yet
        ({1, 2}, {2}, {1, 2}, {1}),
        ({1}, {2}, {2}, set()),  # better a version that is gone than none
        ({1, 2}, {1, 3}, {1, 2, 3}, set()),
        ({1, 2, 3}, {3, 4}, {1, 2, 3, 4}, {1}),  # two are wanted, two stay
        ({1, 2}, {2, 3}, {2, 3}, {1}),  # 1 was removed, 2 answers
        ({1, 2}, set(), set(), {1, 2}),
        (set(), {1}, {1}, set()),
    ],
)
def test_as_many_versions_stay_as_are_expected(available, expected, on_disk, unloaded):
    assert versions_to_unload(available, expected, on_disk) == unloaded


def test_start_tells_model_and_folder_that_cannot_be_served(managed, base):
    missing = base.parent / "missing"
    with pytest.raises(FileNotFoundError, match=f"base path {missing} for servable x"):
        managed(single_model("m", base), single_model("x", missing)).start()
    missing.mkdir()
    text = f"numerical version path for servable x at: {missing}"
    with pytest.raises(FileNotFoundError, match=text):
        managed(single_model("x", missing)).start()
    (base / "1" / "saved_model.pb").write_bytes(b"\x0f")
    with pytest.raises(ValueError, match=f"Version 1 of 'm' in {base}/1 is broken"):
        managed(single_model("m", base)).start()
    text = "Request to assign label to version 4 of model m"
    with pytest.raises(ValueError, match=text):
        managed(
            ModelConfig("m", base, labels={"stable": 4}), load=_nothing, warm_up=_ignore
        ).start()


def _nothing(name, version, folder):
    class Nothing:
        pass

    nothing = Nothing()
    nothing.name, nothing.version = name, version
    return nothing


def _ignore(servable, folder):
    pass


def test_start_is_content_with_one_good_version_of_several(managed, base, example):
    add(example, base, 2)
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f")
    watched = started(managed(ModelConfig("m", base, LatestVersions(2))))
    assert states(watched) == {2: "END", 1: "AVAILABLE"}


def test_a_start_beside_a_broken_newest_version_serves_the_one_before(
    managed, base, example
):
    for version in (2, 3, 4):
        add(example, base, version)
    for version in (3, 4):
        (base / str(version) / "saved_model.pb").write_bytes(b"\x0f")
    watched = started(managed(single_model("m", base)))
    assert latest(watched) == 2
    assert states(watched) == {4: "END", 3: "END", 2: "AVAILABLE"}
    poll(watched)
    assert latest(watched) == 2
    add(example, base, 5)
    poll(watched)
    assert latest(watched) == 5
    assert states(watched)[2] == "END"


def test_a_start_whose_chosen_version_is_broken_serves_no_other(managed, base, example):
    add(example, base, 2)
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f")
    config = ModelConfig("m", base, SpecificVersions(frozenset([2])))
    with pytest.raises(ValueError, match=r"Version 2 of 'm' in .* is broken"):
        managed(config).start()


def test_a_reload_adds_and_removes_models(managed, base, example):
    other = base.parent / "other"
    add(example, other, 4)
    watched = started(managed(single_model("m", base)))
    watched.reload([single_model("m", base), single_model("other", other)])
    assert (latest(watched), latest(watched, "other")) == (1, 4)
    watched.reload([single_model("other", other)])
    watched.poll_now()
    assert states(watched) == {1: "END"}
    assert latest(watched, "other") == 4
    with pytest.raises(StatusError, match=r"request: Latest\(m\)"):
        latest(watched)
    watched.reload([single_model("m", base)])
    assert latest(watched) == 1


def test_a_reload_follows_another_base_path_and_policy(managed, base, example):
    moved = base.parent / "moved"
    add(example, moved, 1)
    add(example, moved, 2)
    loaded = []

    def load(name, version, folder):
        loaded.append(folder)
        return FakeModel(name, version, folder)

    watched = started(managed(single_model("m", base), load=load))
    with watched.served.lease("m") as old:
        watched.reload([ModelConfig("m", moved, AllVersions())])
        with watched.served.lease("m", 1) as new:
            assert new is not old
    assert loaded == [base / "1", moved / "2", moved / "1"]
    assert states(watched) == {2: "AVAILABLE", 1: "AVAILABLE"}
    watched.reload([single_model("m", moved)])
    watched.poll_now()
    assert states(watched) == {2: "AVAILABLE", 1: "END"}
    assert len(loaded) == 3


def test_a_reload_that_fails_changes_nothing(managed, base, example):
    broken, good = base.parent / "broken", base.parent / "good"
    for folder in (broken, good):
        add(example, folder, 1)
    (broken / "1" / "saved_model.pb").write_bytes(b"\x0f")
    add(example, base, 2)
    watched = started(managed(ModelConfig("m", base, labels={"stable": 2})))
    wanted = single_model("good", good)

    code, text = refusal(watched, wanted, single_model("broken", broken))
    assert code == StatusCode.UNKNOWN
    assert text.startswith(
        "1 model(s) did not become available: {{broken due to error: Version 1 of "
    )
    assert error_of(watched, 1, "broken")[0] == StatusCode.INVALID_ARGUMENT
    code, text = refusal(watched, wanted, single_model("none", base.parent / "none"))
    assert code == StatusCode.INVALID_ARGUMENT
    assert text.startswith(f"Could not find base path {base.parent / 'none'} for")
    (base.parent / "empty").mkdir()
    assert refusal(watched, wanted, single_model("empty", base.parent / "empty")) == (
        StatusCode.NOT_FOUND,
        "Unable to find a numerical version path for servable empty at: "
        f"{base.parent / 'empty'}",
    )
    assert refusal(watched, wanted, wanted) == (
        StatusCode.INVALID_ARGUMENT,
        "Illegal to list model good multiple times in config list",
    )

    poll(watched)
    assert latest(watched) == 2
    with watched.served.lease("m", label="stable") as servable:
        assert servable.version == 2
    assert watched.served.names() == ["m"]
    with pytest.raises(StatusError, match=r"request: Latest\(good\)"):
        latest(watched, "good")


def test_a_label_may_only_point_at_an_available_version(managed, base, example):
    add(example, base, 2)
    both = ModelConfig("m", base, AllVersions(), {"stable": 1})
    watched = started(managed(both))
    refused = ModelConfig("m", base, AllVersions(), {"stable": 2, "canary": 3})
    assert refusal(watched, refused) == (
        StatusCode.FAILED_PRECONDITION,
        "Request to assign label to version 3 of model m, which is not currently "
        "available for inference",
    )
    with watched.served.lease("m", label="stable") as servable:
        assert servable.version == 1
    watched.reload([ModelConfig("m", base, AllVersions(), {"stable": 2})])
    with watched.served.lease("m", label="stable") as servable:
        assert servable.version == 2
    # The version would be unloaded by this very reload.
    code, _ = refusal(watched, ModelConfig("m", base, labels={"stable": 1}))
    assert code == StatusCode.FAILED_PRECONDITION
    add(example, base, 3)
    watched.reload([ModelConfig("m", base, LatestVersions(1), {"stable": 3})])
    with watched.served.lease("m", label="stable") as servable:
        assert servable.version == 3


def test_a_label_moves_without_a_gap(managed, base, example):
    seen = []

    def look(servable, folder=None):
        if servable.version == 2:
            with watched.served.lease("m", label="stable") as leased:
                seen.append(leased.version)

    watched = managed(
        ModelConfig("m", base, LatestVersions(1), {"stable": 1}), warm_up=look
    )
    watched.start()
    add(example, base, 2)
    watched.reload([ModelConfig("m", base, LatestVersions(2), {"stable": 2})])
    look(FakeModel("m", 2, example))
    assert seen == [1, 2]


def test_a_broken_version_of_one_model_does_not_stop_a_reload_of_others(
    managed, base, example
):
    watched = started(managed(single_model("m", base)))
    add(example, base, 2)
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f")
    poll(watched)
    other = base.parent / "other"
    add(example, other, 1)
    watched.reload([single_model("m", base), single_model("other", other)])
    assert (latest(watched), latest(watched, "other")) == (1, 1)


def test_the_models_follow_a_file_and_ignore_a_broken_one(
    managed, base, example, tmp_path, caplog
):
    other = base.parent / "other"
    file = tmp_path / "models.config"
    config = 'config {{ name: "{0}" base_path: "{1}" }}'
    both = config.format("m", base) + config.format("other", other)
    watched = started(managed(single_model("m", base)))
    watch = ConfigWatch(file, 3600, watched.reload, retry_seconds=0)
    assert not watch.look_now()
    file.write_text(f"model_config_list {{ {both} }}")
    assert not watch.look_now()  # the model has not been copied yet
    assert watched.served.names() == ["m"]
    add(example, other, 1)
    assert watch.look_now()
    assert latest(watched, "other") == 1
    for broken in ("", "model_config_list {", "model_config_list { config {} }"):
        file.write_text(broken)
        assert not watch.look_now()
        assert not watch.look_now()
    assert watched.served.names() == ["m", "other"]
    errors = [record for record in caplog.records if record.name.endswith("_watch")]
    assert len([record for record in errors if record.levelname == "ERROR"]) == 5


def test_the_first_look_does_not_undo_a_reload_by_request(managed, base, example):
    other = base.parent / "other"
    add(example, other, 4)
    file = base.parent / "models.config"
    file.write_text(
        f'model_config_list {{ config {{ name: "m" base_path: "{base}" }} }}'
    )
    content = file.read_bytes()
    watched = started(managed(*parse_model_configs(content, file)))
    watch = ConfigWatch(file, 3600, watched.reload, applied=content)
    watched.reload([single_model("other", other)])
    assert watch.look_now()
    assert watched.served.names() == ["other"]
    file.write_bytes(content + b"\n")
    assert watch.look_now()
    assert watched.served.names() == ["m"]


def test_a_file_is_parsed_from_the_bytes_that_are_remembered(tmp_path, monkeypatch):
    file = tmp_path / "models.config"
    config = 'model_config_list {{ config {{ name: "{0}" base_path: "/m" }} }}'
    reads = iter([config.format("first").encode(), config.format("second").encode()])
    monkeypatch.setattr(Path, "read_bytes", lambda path: next(reads))
    monkeypatch.setattr(Path, "read_text", lambda path, *_: next(reads).decode())
    reloaded = []
    watch = ConfigWatch(file, 3600, reloaded.append)
    assert watch.look_now()
    assert watch.look_now()
    assert [config.name for (config,) in reloaded] == ["first", "second"]


def test_a_close_with_a_limit_does_not_wait_for_a_reload(tmp_path):
    file = tmp_path / "models.config"
    file.write_text("model_config_list {}")
    reached, go_on = threading.Event(), threading.Event()

    def reload(configs):
        reached.set()
        assert go_on.wait(WAIT_SECONDS)

    watch = ConfigWatch(file, 0.01, reload)
    watch.start()
    assert reached.wait(WAIT_SECONDS)
    closing = threading.Thread(target=watch.close, args=[0.01])
    closing.start()
    closing.join(WAIT_SECONDS)
    has_ended = not closing.is_alive()
    go_on.set()
    closing.join()
    assert has_ended


def test_a_file_that_stays_the_same_is_not_followed_twice(tmp_path):
    file = tmp_path / "models.config"
    file.write_text("model_config_list {}")
    reloaded = []
    watch = ConfigWatch(file, 3600, reloaded.append)
    assert watch.look_now()
    assert watch.look_now()
    assert reloaded == [[]]


def test_the_thread_of_a_watch_looks_at_the_file(tmp_path):
    file = tmp_path / "models.config"
    reloaded = threading.Event()
    with ConfigWatch(file, 0.01, lambda configs: reloaded.set()):
        file.write_text("model_config_list {}")
        assert reloaded.wait(WAIT_SECONDS)
    with pytest.raises(
        ValueError, match=r"`seconds` must be more than 0\. Received: 0"
    ):
        ConfigWatch(file, 0, reloaded.set)


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_reload_is_refused_until_the_start_has_ended(managed, base, moment):
    refused = []

    def load(name, version, folder):
        if moment == "during":
            refused.append(refusal(watched, single_model("m", base)))
        return FakeModel(name, version, folder)

    watched = managed(single_model("m", base), load=load)
    if moment == "before":
        refused.append(refusal(watched, single_model("m", base)))
    watched.start()
    assert refused == [(StatusCode.UNAVAILABLE, "The server is starting. Retry.")]
    watched.reload([single_model("m", base)])
    assert latest(watched) == 1


def test_a_close_with_a_limit_does_not_wait_for_a_load(warming_up):
    watched, go_on = warming_up
    closing = threading.Thread(target=watched.close, args=[0.01])
    closing.start()
    closing.join(WAIT_SECONDS)
    has_ended = not closing.is_alive()
    go_on.set()
    closing.join()
    assert has_ended


def test_failed_reloads_do_not_make_the_table_grow_without_end(managed, base):
    def load(name, version, folder):
        if name != "m":
            raise OSError("no connection")
        return FakeModel(name, version, folder)

    watched = started(managed(single_model("m", base), load=load))
    for number in range(130):
        refusal(watched, single_model(f"x{number}", base))

    def known():
        names = []
        for number in range(130):
            with contextlib.suppress(StatusError):
                states(watched, f"x{number}")
                names.append(number)
        return names

    # The thread looks after it, though no base path is watched.
    wait_until(lambda: known() == list(range(30, 130)))
    assert latest(watched) == 1


def test_a_reload_after_close_is_refused(managed, base):
    watched = started(managed(single_model("m", base)))
    watched.close()
    assert refusal(watched, single_model("m", base))[0] == StatusCode.UNAVAILABLE
    assert latest(watched) == 1


@pytest.mark.parametrize("name", ["poll_seconds", "load_retries", "load_retry_seconds"])
def test_numbers_out_of_range_are_refused(base, name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 0. Received: -1"):
        WatchedModels([single_model("m", base)], **{name: -1})


def test_twenty_swaps_leave_nothing_in_memory(managed, real_base, example_model):
    loaded = []

    def load(name, version, folder):
        servable = Servable(name, version, folder)
        loaded.append((weakref.ref(servable), weakref.ref(servable._model)))
        return servable

    watched = started(managed(single_model("m", real_base), load=load))
    counts = []
    gc.disable()  # so that all that goes is let go by `WatchedModels`
    try:
        for version in range(2, 22):
            (real_base / str(version - 1)).rename(real_base / str(version))
            poll(watched)
            assert latest(watched) == version
            assert len(loaded) == version
            wait_until(lambda: all(ref() is None for p in loaded[:-1] for ref in p))
            counts.append(len(gc.get_objects()))
    finally:
        gc.enable()
    # A version of this model has about 2,000 objects.
    assert counts[-1] - counts[4] < 1000


def test_names_that_are_no_numbers_are_no_versions(tmp_path):
    for name in ("1", "007", "7", "-2", "1.5", "new", "٣", str(2**63), str(2**63 - 1)):
        (tmp_path / name).mkdir()
    (tmp_path / "5").touch()
    assert find_version_folders(tmp_path) == {
        1: tmp_path / "1",
        7: tmp_path / "7",
        2**63 - 1: tmp_path / str(2**63 - 1),
    }
    with pytest.raises(FileNotFoundError):
        find_version_folders(tmp_path / "none")


def test_the_stamp_of_a_folder_follows_each_change(tmp_path):
    (tmp_path / "variables").mkdir()
    file = tmp_path / "variables" / "data"
    file.write_bytes(b"a")
    stamp = folder_stamp(tmp_path)
    assert folder_stamp(tmp_path) == stamp
    file.with_name("index").touch()
    assert folder_stamp(tmp_path) != stamp
    file.with_name("index").unlink()
    assert folder_stamp(tmp_path) == stamp
    file.write_bytes(b"ab")
    assert folder_stamp(tmp_path) != stamp
