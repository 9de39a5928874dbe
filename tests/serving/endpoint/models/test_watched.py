"""Versions that come, go and break below a base path, without a real model."""

import logging
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.endpoint.models.config import (
    AllVersions,
    LatestVersions,
    ModelConfig,
    SpecificVersions,
    single_model,
)
from serving.endpoint.models.plan import versions_to_unload
from serving.endpoint.models.watched import WatchedModels
from serving.web.status import StatusCode, StatusError
from tests.support.watched import (
    WAIT_SECONDS,
    FakeModel,
    add,
    damage,
    error_of,
    latest,
    poll,
    started,
    states,
    wait_until,
)


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


def test_start_tells_model_and_folder_that_cannot_be_served(managed, base):
    missing = base.parent / "missing"
    with pytest.raises(FileNotFoundError, match=f"base path {missing} for servable x"):
        managed(single_model("m", base), single_model("x", missing)).start()
    missing.mkdir()
    text = f"numerical version path for servable x at: {missing}"
    with pytest.raises(FileNotFoundError, match=text):
        managed(single_model("x", missing)).start()
    text = "Request to assign label to version 4 of model m"
    with pytest.raises(ValueError, match=text):
        managed(ModelConfig("m", base, labels={"stable": 4})).start()
    damage(base, 1)
    with pytest.raises(ValueError, match=f"Version 1 of 'm' in {base}/1 is broken"):
        managed(single_model("m", base)).start()


def test_start_is_content_with_one_good_version_of_several(managed, base, example):
    add(example, base, 2)
    damage(base, 2)
    watched = started(managed(ModelConfig("m", base, LatestVersions(2))))
    assert states(watched) == {2: "END", 1: "AVAILABLE"}


def test_a_start_beside_a_broken_newest_version_serves_the_one_before(
    managed, base, example
):
    for version in (2, 3, 4):
        add(example, base, version)
    for version in (3, 4):
        damage(base, version)
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
    damage(base, 2)
    config = ModelConfig("m", base, SpecificVersions(frozenset([2])))
    with pytest.raises(ValueError, match=r"Version 2 of 'm' in .* is broken"):
        managed(config).start()


def test_the_thread_swaps_to_a_new_version_and_unloads_the_old_one(
    managed, base, example
):
    watched = started(managed(single_model("m", base), poll_seconds=0.01))
    add(example, base, 2)
    wait_until(lambda: states(watched) == {2: "AVAILABLE", 1: "END"})
    assert latest(watched) == 2


def test_the_old_version_answers_until_the_new_one_has_been_warmed_up(warming_up):
    watched, go_on = warming_up
    assert states(watched) == {2: "LOADING", 1: "AVAILABLE"}
    assert latest(watched) == 1
    go_on.set()
    wait_until(lambda: latest(watched) == 2)


def test_no_request_fails_while_versions_are_swapped(managed, base, example):
    watched = started(managed(single_model("m", base)))
    stop = threading.Event()

    def ask():
        seen = [1]
        while not stop.is_set():
            with watched.served.lease("m") as servable:
                seen.append(servable.version)
        return seen

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for version in range(2, 22):
                add(example, base, version)
                poll(watched)
                shutil.rmtree(base / str(version - 1))
        finally:
            stop.set()
    for answered in asking:
        assert answered.result() == sorted(answered.result())
    assert latest(watched) == 21


@pytest.mark.parametrize("harm", ["graph", "weights", "warm-up"])
def test_a_broken_version_never_replaces_a_good_one(
    managed, base, example, harm, caplog
):
    def warm_up(servable, folder):
        if servable.version == 2:
            raise StatusError(StatusCode.DATA_LOSS, "no answer")

    options = {"warm_up": warm_up} if harm == "warm-up" else {}
    watched = started(managed(single_model("m", base), **options))
    add(example, base, 2)
    if harm == "graph":
        damage(base, 2)
    if harm == "weights":
        shutil.rmtree(base / "2" / "variables")
    poll(watched)
    poll(watched)
    assert latest(watched) == 1
    assert states(watched) == {2: "END", 1: "AVAILABLE"}
    code, message = error_of(watched, 2)
    if harm == "warm-up":
        assert (code, message) == (StatusCode.DATA_LOSS, "no answer")
    else:
        assert code == StatusCode.INVALID_ARGUMENT
        assert message == f"Version 2 of 'm' in {base}/2 is broken."
    with (
        pytest.raises(StatusError, match=r"request: Specific\(m, 2\)"),
        watched.served.lease("m", 2),
    ):
        pass
    assert message in caplog.text


def test_a_version_after_a_broken_one_is_served(managed, base, example):
    watched = started(managed(single_model("m", base)))
    add(example, base, 2)
    damage(base, 2)
    poll(watched)
    add(example, base, 3)
    poll(watched)
    assert states(watched) == {3: "AVAILABLE", 2: "END", 1: "END"}


def test_a_broken_version_is_served_once_its_files_are_replaced(managed, base, example):
    watched = started(managed(single_model("m", base), load_retries=0))
    add(example, base, 2)
    graph = base / "2" / "saved_model.pb"
    whole, times = graph.read_bytes(), graph.stat()
    graph.write_bytes(b"\x0f" * len(whole))
    poll(watched)
    poll(watched)
    assert states(watched)[2] == "END"
    graph.write_bytes(whole)
    # Two writes within one tick of the disk's clock would look like one.
    os.utime(graph, ns=(times.st_atime_ns, times.st_mtime_ns - 10**9))
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


def test_a_close_with_a_limit_does_not_wait_for_a_load(warming_up):
    watched, go_on = warming_up
    closing = threading.Thread(target=watched.close, args=[0.01])
    closing.start()
    closing.join(WAIT_SECONDS)
    has_ended = not closing.is_alive()
    go_on.set()
    closing.join()
    assert has_ended


@pytest.mark.parametrize("name", ["poll_seconds", "load_retries", "load_retry_seconds"])
def test_numbers_out_of_range_are_refused(base, name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 0. Received: -1"):
        WatchedModels([single_model("m", base)], **{name: -1})
