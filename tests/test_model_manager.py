import gc
import logging
import shutil
import threading
import time
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from serving.models.config import (
    AllVersions,
    LatestVersions,
    ModelConfig,
    SpecificVersions,
    single_model,
)
from serving.models.config_watch import ConfigWatch
from serving.models.manager import ModelManager
from serving.models.plan import versions_to_unload
from serving.models.saved_model import find_version_folders, folder_stamp
from serving.models.servable import Servable, ServableError, StatusCode
from serving.models.served import VersionState
from serving.models.warm_up import write_warm_up_requests
from tests.example_model import png, write_example_model

WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example") / "1"
    write_example_model(folder)
    return folder


@pytest.fixture
def base(tmp_path, example):
    """A base path with version 1."""
    shutil.copytree(example, tmp_path / "m" / "1")
    return tmp_path / "m"


@pytest.fixture
def managed():
    """Make managers that only look at the disk when told, and close them."""
    managers = []

    def make(*configs, **options):
        manager = ModelManager(configs, **{"poll_seconds": 0, **options})
        managers.append(manager)
        return manager

    yield make
    for manager in managers:
        manager.close()


def started(manager):
    manager.start()
    return manager


def add(example, base, version):
    shutil.copytree(example, base / str(version))


def poll(manager):
    """Look twice: a version is taken up when its files have not changed between."""
    manager.poll_now()
    manager.poll_now()


def states(manager, name="m"):
    return {
        status.version: VersionState(status.state).name
        for status in manager.models.status(name).model_version_status
    }


def error_of(manager, version, name="m"):
    (status,) = manager.models.status(name, version).model_version_status
    return StatusCode(status.status.error_code), status.status.error_message


def latest(manager, name="m"):
    with manager.models.lease(name) as servable:
        return servable.version


def refusal(manager, *configs):
    with pytest.raises(ServableError) as caught:
        manager.reload(configs)
    return caught.value.code, caught.value.message


def wait_until(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The condition has not come true.")
        time.sleep(0.005)


def test_start_returns_with_the_latest_version_available(managed, base, example):
    add(example, base, 3)
    (base / "notes").mkdir()
    (base / "7").touch()
    manager = managed(single_model("m", base))
    with pytest.raises(ServableError, match="still being loaded"):
        latest(manager)
    manager.start()
    assert latest(manager) == 3
    assert states(manager) == {3: "AVAILABLE"}
    assert manager.models.is_ready()


def test_the_thread_swaps_to_a_new_version_and_unloads_the_old_one(
    managed, base, example
):
    loaded, unloaded = threading.Event(), threading.Event()
    manager = managed(
        single_model("m", base),
        poll_seconds=0.01,
        on_loaded=lambda servable: servable.version == 2 and loaded.set(),
        on_unloaded=lambda servable: servable.version == 1 and unloaded.set(),
    )
    manager.start()
    add(example, base, 2)
    assert loaded.wait(WAIT_SECONDS)
    assert unloaded.wait(WAIT_SECONDS)
    assert latest(manager) == 2
    assert states(manager) == {2: "AVAILABLE", 1: "END"}


def test_no_request_fails_while_versions_are_swapped(managed, base, example):
    manager = started(managed(single_model("m", base)))
    stop = threading.Event()
    failures, answered = [], []

    def ask():
        picture = np.array([png(255, 0, 0)], object)
        count = 0
        while not stop.is_set():
            try:
                with manager.models.lease("m") as servable:
                    servable.predict({"image_bytes": picture})
                count += 1
            except Exception as error:
                failures.append(error)
        answered.append(count)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for version in range(2, 6):
            add(example, base, version)
            poll(manager)
            shutil.rmtree(base / str(version - 1))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert len(answered) == 4
    assert min(answered) > 0
    assert latest(manager) == 5


def test_the_old_version_answers_until_the_new_one_has_been_warmed_up(
    managed, base, example
):
    reached, go_on = threading.Event(), threading.Event()

    def warm_up(servable, folder):
        if servable.version == 2:
            reached.set()
            assert go_on.wait(WAIT_SECONDS)

    manager = started(
        managed(single_model("m", base), warm_up=warm_up, poll_seconds=0.01)
    )
    add(example, base, 2)
    assert reached.wait(WAIT_SECONDS)
    assert states(manager) == {2: "LOADING", 1: "AVAILABLE"}
    assert latest(manager) == 1
    go_on.set()
    wait_until(lambda: latest(manager) == 2)


def test_a_version_is_unloaded_when_its_last_lease_ends(managed, base, example):
    unloaded = threading.Event()
    manager = managed(
        single_model("m", base), on_unloaded=lambda servable: unloaded.set()
    )
    manager.start()
    add(example, base, 2)
    with manager.models.lease("m") as servable:
        poll(manager)
        assert latest(manager) == 2
        assert states(manager) == {2: "AVAILABLE", 1: "UNLOADING"}
        assert not unloaded.is_set()
        pictures = np.array([png(255, 0, 0)], object)
        outputs = servable.predict({"image_bytes": pictures})
        assert outputs["embedding"].shape == (1, 4)
        gone = weakref.ref(servable)
        del servable
    assert unloaded.wait(WAIT_SECONDS)
    assert states(manager)[1] == "END"
    wait_until(lambda: gone() is None)


@pytest.mark.parametrize("harm", ["graph", "weights", "hook"])
def test_a_broken_version_never_replaces_a_good_one(
    managed, base, example, harm, caplog
):
    def warm_up(servable, folder):
        if servable.version == 2 and harm == "hook":
            raise ServableError(StatusCode.DATA_LOSS, "no answer")

    manager = started(managed(single_model("m", base), warm_up=warm_up))
    add(example, base, 2)
    if harm == "graph":
        (base / "2" / "saved_model.pb").write_bytes(b"\x0fno model")
    if harm == "weights":
        shutil.rmtree(base / "2" / "variables")
    poll(manager)
    poll(manager)
    assert latest(manager) == 1
    assert states(manager) == {2: "END", 1: "AVAILABLE"}
    code, message = error_of(manager, 2)
    if harm == "hook":
        assert (code, message) == (StatusCode.DATA_LOSS, "no answer")
    else:
        assert code == StatusCode.INVALID_ARGUMENT
        assert "Version 2 of model 'm' cannot be loaded" in message
    with pytest.raises(ServableError, match=r"request: Specific\(m, 2\)"):
        manager.models.lease("m", 2).__enter__()
    assert message in caplog.text
    assert manager.models.is_ready()


def warm_up_request(content):
    request = predict_pb2.PredictRequest()
    request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([content]))
    return request


def test_a_failing_warm_up_request_keeps_its_version_out(managed, base, example):
    runs = []
    manager = managed(
        single_model("m", base),
        on_warmed_up=lambda folder, seconds, error: runs.append(
            (folder, seconds >= 0, error)
        ),
    )
    write_warm_up_requests(base / "1", [warm_up_request(png(1, 2, 3))])
    manager.start()
    assert runs == [(base / "1", True, None)]
    add(example, base, 2)
    write_warm_up_requests(base / "2", [warm_up_request(b"no picture")])
    poll(manager)
    assert latest(manager) == 1
    code, message = error_of(manager, 2)
    assert code == StatusCode.INVALID_ARGUMENT
    assert message.startswith("Warm-up record 1 in ")
    assert runs[1:] == [(base / "2", True, message)]
    add(example, base, 3)
    poll(manager)
    assert latest(manager) == 3
    assert len(runs) == 2  # version 3 has no requests


def test_a_version_after_a_broken_one_is_served(managed, base, example):
    manager = started(managed(single_model("m", base)))
    add(example, base, 2)
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f")
    poll(manager)
    add(example, base, 3)
    poll(manager)
    assert states(manager) == {3: "AVAILABLE", 2: "END", 1: "END"}


def test_a_broken_version_is_served_once_its_files_are_replaced(managed, base, example):
    manager = started(managed(single_model("m", base), load_retries=0))
    add(example, base, 2)
    whole = (base / "2" / "saved_model.pb").read_bytes()
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f" * len(whole))
    poll(manager)
    poll(manager)
    assert states(manager)[2] == "END"
    (base / "2" / "saved_model.pb").write_bytes(whole)
    poll(manager)
    assert states(manager) == {2: "AVAILABLE", 1: "END"}
    assert error_of(manager, 2) == (StatusCode.OK, "")


def test_a_broken_version_is_tried_again_as_often_as_set(managed, base, example):
    tried = []

    def load(name, version, folder):
        tried.append((name, version))
        if name == "m" and version == 2:
            raise OSError("no connection")
        return Servable(name, version, folder)

    other = base.parent / "other"
    add(example, other, 1)
    configs = [single_model("m", base), single_model("other", other)]
    manager = started(
        managed(*configs, load=load, load_retries=2, load_retry_seconds=0)
    )
    add(example, base, 2)
    add(example, other, 2)
    for _ in range(6):
        manager.poll_now()
    assert tried.count(("m", 2)) == 3
    assert tried.count(("other", 2)) == 1
    assert error_of(manager, 2) == (StatusCode.INTERNAL, "no connection")
    assert (latest(manager), latest(manager, "other")) == (1, 2)


def test_a_further_try_waits_and_holds_up_no_other_model(managed, base, example):
    tried = []

    def load(name, version, folder):
        tried.append((name, version))
        if name == "m" and version == 2:
            raise OSError("no connection")
        return Servable(name, version, folder)

    other = base.parent / "other"
    add(example, other, 1)
    configs = [single_model("m", base), single_model("other", other)]
    manager = started(managed(*configs, load=load, load_retry_seconds=3600))
    add(example, base, 2)
    poll(manager)
    add(example, other, 2)
    poll(manager)
    assert tried.count(("m", 2)) == 1
    assert latest(manager, "other") == 2


def test_a_folder_that_is_being_copied_is_left_alone(managed, base, example, caplog):
    manager = started(managed(single_model("m", base)))
    part = base / "2"
    shutil.copytree(example / "variables", part / "variables")
    poll(manager)
    assert states(manager) == {1: "AVAILABLE"}
    shutil.copy(example / "saved_model.pb", part)
    manager.poll_now()
    assert states(manager) == {2: "START", 1: "AVAILABLE"}
    (part / "assets.extra").mkdir()
    (part / "assets.extra" / "more").touch()
    manager.poll_now()
    assert states(manager) == {2: "START", 1: "AVAILABLE"}
    manager.poll_now()
    assert states(manager) == {2: "AVAILABLE", 1: "END"}
    assert not [
        record for record in caplog.records if record.levelno >= logging.WARNING
    ]


def test_a_copy_that_is_given_up_ends(managed, base, example):
    manager = started(managed(single_model("m", base)))
    add(example, base, 2)
    manager.poll_now()
    shutil.rmtree(base / "2")
    manager.poll_now()
    assert states(manager) == {2: "END", 1: "AVAILABLE"}


def test_the_old_version_serves_while_its_successor_is_being_copied(
    managed, base, example
):
    manager = started(managed(single_model("m", base)))
    shutil.rmtree(base / "1")
    (base / "2").mkdir()
    poll(manager)
    assert latest(manager) == 1
    shutil.copytree(example, base / "2", dirs_exist_ok=True)
    poll(manager)
    assert states(manager) == {2: "AVAILABLE", 1: "END"}


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
    manager = started(managed(ModelConfig("m", base, policy)))
    assert manager.models.available_versions("m") == before
    add(example, base, 5)
    poll(manager)
    assert manager.models.available_versions("m") == after


def test_a_version_that_is_removed_from_disk_is_unloaded(managed, base, example):
    add(example, base, 2)
    manager = started(managed(ModelConfig("m", base, AllVersions())))
    shutil.rmtree(base / "1")
    poll(manager)
    assert states(manager) == {2: "AVAILABLE", 1: "END"}


def test_the_version_before_comes_back_when_the_latest_is_removed(
    managed, base, example
):
    add(example, base, 2)
    manager = started(managed(single_model("m", base)))
    shutil.rmtree(base / "2")
    manager.poll_now()
    assert latest(manager) == 2
    manager.poll_now()
    assert states(manager) == {2: "END", 1: "AVAILABLE"}


def test_a_base_path_that_vanishes_leaves_what_is_served(managed, base, caplog):
    manager = started(managed(single_model("m", base)))
    base.rename(base.with_name("elsewhere"))
    for _ in range(3):
        poll(manager)
    assert latest(manager) == 1
    assert caplog.text.count("Model m stays as it is") == 1
    base.with_name("elsewhere").rename(base)
    poll(manager)
    assert states(manager) == {1: "AVAILABLE"}


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
    with pytest.raises(ValueError, match=f"1 of model 'm' cannot be .*{base}/1"):
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
    manager = started(managed(ModelConfig("m", base, LatestVersions(2))))
    assert states(manager) == {2: "END", 1: "AVAILABLE"}


def test_a_start_beside_a_broken_newest_version_serves_the_one_before(
    managed, base, example
):
    for version in (2, 3, 4):
        add(example, base, version)
    for version in (3, 4):
        (base / str(version) / "saved_model.pb").write_bytes(b"\x0f")
    manager = started(managed(single_model("m", base)))
    assert latest(manager) == 2
    assert states(manager) == {4: "END", 3: "END", 2: "AVAILABLE"}
    poll(manager)
    assert latest(manager) == 2
    add(example, base, 5)
    poll(manager)
    assert latest(manager) == 5
    assert states(manager)[2] == "END"


def test_a_start_whose_chosen_version_is_broken_serves_no_other(managed, base, example):
    add(example, base, 2)
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f")
    config = ModelConfig("m", base, SpecificVersions(frozenset([2])))
    with pytest.raises(ValueError, match="Version 2 of model 'm' cannot be loaded"):
        managed(config).start()


def test_a_reload_adds_and_removes_models(managed, base, example):
    other = base.parent / "other"
    add(example, other, 4)
    manager = started(managed(single_model("m", base)))
    manager.reload([single_model("m", base), single_model("other", other)])
    assert (latest(manager), latest(manager, "other")) == (1, 4)
    manager.reload([single_model("other", other)])
    manager.poll_now()
    assert states(manager) == {1: "END"}
    assert latest(manager, "other") == 4
    assert manager.models.is_ready()
    with pytest.raises(ServableError, match=r"request: Latest\(m\)"):
        latest(manager)
    manager.reload([single_model("m", base)])
    assert latest(manager) == 1


def test_a_reload_follows_another_base_path_and_policy(managed, base, example):
    moved = base.parent / "moved"
    add(example, moved, 1)
    add(example, moved, 2)
    loaded = []

    def load(name, version, folder):
        loaded.append(folder)
        return Servable(name, version, folder)

    manager = started(managed(single_model("m", base), load=load))
    with manager.models.lease("m") as old:
        manager.reload([ModelConfig("m", moved, AllVersions())])
        with manager.models.lease("m", 1) as new:
            assert new is not old
    assert loaded == [base / "1", moved / "2", moved / "1"]
    assert states(manager) == {2: "AVAILABLE", 1: "AVAILABLE"}
    manager.reload([single_model("m", moved)])
    manager.poll_now()
    assert states(manager) == {2: "AVAILABLE", 1: "END"}
    assert len(loaded) == 3


def test_a_reload_that_fails_changes_nothing(managed, base, example):
    broken, good = base.parent / "broken", base.parent / "good"
    for folder in (broken, good):
        add(example, folder, 1)
    (broken / "1" / "saved_model.pb").write_bytes(b"\x0f")
    add(example, base, 2)
    manager = started(managed(ModelConfig("m", base, labels={"stable": 2})))
    wanted = single_model("good", good)

    code, text = refusal(manager, wanted, single_model("broken", broken))
    assert code == StatusCode.UNKNOWN
    assert text.startswith(
        "1 model(s) did not become available: {{broken due to error: Version 1 of "
    )
    assert error_of(manager, 1, "broken")[0] == StatusCode.INVALID_ARGUMENT
    code, text = refusal(manager, wanted, single_model("none", base.parent / "none"))
    assert code == StatusCode.INVALID_ARGUMENT
    assert text.startswith(f"Could not find base path {base.parent / 'none'} for")
    (base.parent / "empty").mkdir()
    assert refusal(manager, wanted, single_model("empty", base.parent / "empty")) == (
        StatusCode.NOT_FOUND,
        "Unable to find a numerical version path for servable empty at: "
        f"{base.parent / 'empty'}",
    )
    assert refusal(manager, wanted, wanted) == (
        StatusCode.INVALID_ARGUMENT,
        "Illegal to list model good multiple times in config list",
    )

    poll(manager)
    assert latest(manager) == 2
    with manager.models.lease("m", label="stable") as servable:
        assert servable.version == 2
    assert manager.models.names() == ["m"]
    assert manager.models.is_ready()
    with pytest.raises(ServableError, match=r"request: Latest\(good\)"):
        latest(manager, "good")


def test_a_label_may_only_point_at_an_available_version(managed, base, example):
    add(example, base, 2)
    both = ModelConfig("m", base, AllVersions(), {"stable": 1})
    manager = started(managed(both))
    refused = ModelConfig("m", base, AllVersions(), {"stable": 2, "canary": 3})
    assert refusal(manager, refused) == (
        StatusCode.FAILED_PRECONDITION,
        "Request to assign label to version 3 of model m, which is not currently "
        "available for inference",
    )
    with manager.models.lease("m", label="stable") as servable:
        assert servable.version == 1
    manager.reload([ModelConfig("m", base, AllVersions(), {"stable": 2})])
    with manager.models.lease("m", label="stable") as servable:
        assert servable.version == 2
    # The version would be unloaded by this very reload.
    code, _ = refusal(manager, ModelConfig("m", base, labels={"stable": 1}))
    assert code == StatusCode.FAILED_PRECONDITION
    add(example, base, 3)
    manager.reload([ModelConfig("m", base, LatestVersions(1), {"stable": 3})])
    with manager.models.lease("m", label="stable") as servable:
        assert servable.version == 3


def test_a_label_moves_without_a_gap(managed, base, example):
    seen = []

    def look(servable):
        if servable.version == 2:
            with manager.models.lease("m", label="stable") as leased:
                seen.append(leased.version)

    manager = managed(
        ModelConfig("m", base, LatestVersions(1), {"stable": 1}), on_loaded=look
    )
    manager.start()
    add(example, base, 2)
    manager.reload([ModelConfig("m", base, LatestVersions(2), {"stable": 2})])
    look(Servable("m", 2, example))
    assert seen == [1, 2]


def test_a_broken_version_of_one_model_does_not_stop_a_reload_of_others(
    managed, base, example
):
    manager = started(managed(single_model("m", base)))
    add(example, base, 2)
    (base / "2" / "saved_model.pb").write_bytes(b"\x0f")
    poll(manager)
    other = base.parent / "other"
    add(example, other, 1)
    manager.reload([single_model("m", base), single_model("other", other)])
    assert (latest(manager), latest(manager, "other")) == (1, 1)


def test_the_models_follow_a_file_and_ignore_a_broken_one(
    managed, base, example, tmp_path, caplog
):
    other = base.parent / "other"
    file = tmp_path / "models.config"
    config = 'config {{ name: "{0}" base_path: "{1}" }}'
    both = config.format("m", base) + config.format("other", other)
    manager = started(managed(single_model("m", base)))
    watch = ConfigWatch(file, 3600, manager.reload, retry_seconds=0)
    assert not watch.look_now()
    file.write_text(f"model_config_list {{ {both} }}")
    assert not watch.look_now()  # the model has not been copied yet
    assert manager.models.names() == ["m"]
    add(example, other, 1)
    assert watch.look_now()
    assert latest(manager, "other") == 1
    for broken in ("", "model_config_list {", "model_config_list { config {} }"):
        file.write_text(broken)
        assert not watch.look_now()
        assert not watch.look_now()
    assert manager.models.names() == ["m", "other"]
    errors = [record for record in caplog.records if record.name.endswith("_watch")]
    assert len([record for record in errors if record.levelname == "ERROR"]) == 5


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


def test_a_reload_after_close_is_refused(managed, base):
    manager = started(managed(single_model("m", base)))
    manager.close()
    assert refusal(manager, single_model("m", base))[0] == StatusCode.UNAVAILABLE
    assert latest(manager) == 1


def test_a_hook_that_fails_stops_nothing(managed, base, example, caplog):
    def fail(servable):
        raise KeyError("hook")

    manager = managed(single_model("m", base), on_loaded=fail, on_unloaded=fail)
    manager.start()
    add(example, base, 2)
    poll(manager)
    wait_until(lambda: states(manager) == {2: "AVAILABLE", 1: "END"})
    assert caplog.text.count("A hook for version") == 3


@pytest.mark.parametrize("name", ["poll_seconds", "load_retries", "load_retry_seconds"])
def test_numbers_out_of_range_are_refused(base, name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 0. Received: -1"):
        ModelManager([single_model("m", base)], **{name: -1})


def test_twenty_swaps_leave_nothing_in_memory(managed, base, example):
    gone = []
    manager = managed(
        single_model("m", base),
        on_unloaded=lambda servable: gone.append(
            (weakref.ref(servable), weakref.ref(servable._model))
        ),
    )
    manager.start()
    counts = []
    gc.disable()  # so that all that goes is let go by the manager
    try:
        for version in range(2, 22):
            (base / str(version - 1)).rename(base / str(version))
            poll(manager)
            assert latest(manager) == version
            wait_until(lambda version=version: len(gone) == version - 1)
            wait_until(lambda: all(ref() is None for pair in gone for ref in pair))
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
