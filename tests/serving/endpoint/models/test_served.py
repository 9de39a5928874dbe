import contextlib
import gc
import threading
from types import SimpleNamespace

import pytest

from serving.endpoint.models.info import model_status_json
from serving.endpoint.models.served import ServedModels
from serving.endpoint.models.version_states import VersionState, VersionStatus
from serving.web.status import StatusCode, StatusError
from tests.support.served import not_found


def servable(name, version):
    return SimpleNamespace(name=name, version=version)


def failure(models, *args, **kwargs):
    with pytest.raises(StatusError) as caught, models.lease(*args, **kwargs):
        pass
    return caught.value.code, caught.value.message


def states(models, name):
    return {
        status.version: VersionState(status.state).name
        for status in models.status(name).model_version_status
    }


@pytest.fixture
def models():
    return ServedModels([servable("m", 1), servable("m", 3), servable("other", 7)])


def test_a_lease_means_the_highest_available_version(models):
    models.set_state("m", VersionStatus(5, VersionState.LOADING))
    with models.lease("m") as leased:
        assert leased.version == 3
    with models.lease("m", 1) as leased:
        assert leased.version == 1
    models.make_available(servable("m", 5))
    with models.lease("m") as leased:
        assert leased.version == 5


def test_refusals_have_the_texts_of_tf_serving(models):
    assert failure(models, "x") == (
        StatusCode.NOT_FOUND,
        not_found("x"),
    )
    assert failure(models, "m", 2) == (
        StatusCode.NOT_FOUND,
        not_found("m", 2),
    )
    assert failure(models, "m", label="stable") == (
        StatusCode.INVALID_ARGUMENT,
        "Unrecognized servable version label: stable",
    )
    assert failure(models, "") == (
        StatusCode.INVALID_ARGUMENT,
        "ModelSpec has no name specified.",
    )


def test_a_model_is_unavailable_until_its_first_version_has_been_loaded():
    models = ServedModels()
    models.configure({"m": {"stable": 1}})
    models.set_state("m", VersionStatus(1, VersionState.LOADING))
    still_loading = (
        StatusCode.UNAVAILABLE,
        "The model is still being loaded. Retry.",
    )
    assert failure(models, "m") == still_loading
    assert failure(models, "m", 1) == still_loading
    assert failure(models, "m", label="stable") == still_loading
    assert failure(models, "x")[0] == StatusCode.NOT_FOUND
    models.make_available(servable("m", 1))
    models.unload("m", 1)
    assert failure(models, "m")[0] == StatusCode.NOT_FOUND


def test_a_label_leads_to_its_version(models):
    models.configure({"m": {"stable": 1, "canary": 3}, "other": {}})
    for label, version in (("stable", 1), ("canary", 3)):
        with models.lease("m", label=label) as leased:
            assert leased.version == version
    models.unload("m", 1)
    assert failure(models, "m", label="stable") == (
        StatusCode.NOT_FOUND,
        not_found("m", 1),
    )
    models.configure({"m": {}, "other": {}})
    assert failure(models, "m", label="canary")[0] == StatusCode.INVALID_ARGUMENT


def test_a_version_in_use_stays_until_its_last_user_has_left(models):
    idle = []
    models.call_when_idle(lambda: idle.append(True))
    with models.lease("m") as first:
        with models.lease("m"):
            models.unload("m", 3)
            with models.lease("m") as leased:
                assert leased.version == 1
        assert models.collect_idle() == []
        assert states(models, "m") == {3: "UNLOADING", 1: "AVAILABLE"}
        idle.clear()
    assert idle
    assert models.collect_idle() == [first]
    assert states(models, "m") == {3: "END", 1: "AVAILABLE"}
    assert models.collect_idle() == []


def test_only_the_last_user_of_what_is_to_go_calls_for_a_collection(models):
    called = []
    models.call_when_idle(lambda: called.append(True))
    with models.lease("m"), models.lease("m", 1):
        pass
    assert called == []
    with models.lease("m"):
        models.unload("m", 3)
        called.clear()
    assert called == [True]
    with models.lease("m", 1):
        models.make_available(servable("m", 1))
        called.clear()
    assert called == [True]


def test_a_lease_ends_in_another_thread_and_on_errors(models):
    lease = models.lease("m")
    lease.__enter__()
    models.unload("m", 3)
    thread = threading.Thread(target=lease.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert len(models.collect_idle()) == 1
    with pytest.raises(KeyError), models.lease("m"):
        raise KeyError
    models.unload("m", 1)
    assert len(models.collect_idle()) == 1


def test_a_lease_that_is_dropped_ends(models):
    lease = models.lease("m")
    lease.__enter__()
    del lease
    gc.collect()
    models.unload("m", 3)
    assert len(models.collect_idle()) == 1


def test_another_copy_of_a_version_takes_over_without_a_gap(models):
    old = servable("copied", 1)
    models.make_available(old)
    new = servable("copied", 1)
    with models.lease("copied") as leased:
        assert leased is old
        models.set_state("copied", VersionStatus(1, VersionState.LOADING))
        assert states(models, "copied") == {1: "AVAILABLE"}
        models.make_available(new)
        with models.lease("copied", 1) as leased_then:
            assert leased_then is new
        assert models.collect_idle() == []
    assert models.collect_idle() == [old]
    assert states(models, "copied") == {1: "AVAILABLE"}


def test_the_status_lists_the_newest_version_first_with_its_error(models):
    models.set_state(
        "m",
        VersionStatus(4, VersionState.END, StatusCode.INVALID_ARGUMENT, "broken"),
    )
    found = models.status("m").model_version_status
    assert [status.version for status in found] == [4, 3, 1]
    assert found[0].status.error_code == StatusCode.INVALID_ARGUMENT
    assert found[0].status.error_message == "broken"
    assert model_status_json(models.status("m", 4)) == (
        b'{\n "model_version_status": [\n  {\n   "version": "4",\n   "state": "END",\n'
        b'   "status": {\n    "error_code": "INVALID_ARGUMENT",\n'
        b'    "error_message": "broken"\n   }\n  }\n ]\n}\n'
    )
    assert found[1].HasField("status")


def test_the_status_of_what_does_not_exist_is_not_found(models):
    for args, text in {
        ("x",): "Could not find any versions of model x",
        ("m", 9): "Could not find version 9 of model m",
    }.items():
        with pytest.raises(StatusError, match=text) as caught:
            models.status(*args)
        assert caught.value.code == StatusCode.NOT_FOUND
    with pytest.raises(StatusError, match="Unrecognized servable version label: x"):
        models.status("m", label="x")
    models.configure({"m": {"stable": 1}, "other": {}})
    (found,) = models.status("m", label="stable").model_version_status
    assert found.version == 1


def test_a_thousand_swaps_do_not_make_the_status_grow_without_end():
    models = ServedModels()
    models.configure({"m": {}})
    for version in range(1000):
        models.make_available(servable("m", version))
        if version:
            models.unload("m", version - 1)
        models.collect_idle()
    found = states(models, "m")
    assert found[999] == "AVAILABLE"
    assert set(found.values()) == {"AVAILABLE", "END"}
    assert len(found) == 101
    assert min(found) == 899


def test_a_hundred_models_that_are_gone_still_have_a_status(models):
    models.configure({"other": {}})
    models.unload("m", 1)
    models.unload("m", 3)
    for number in range(150):
        models.set_state(f"x{number}", VersionStatus(1, VersionState.END))
        models.collect_idle()
    assert states(models, "other") == {7: "AVAILABLE"}
    # What failed again is young again.
    models.set_state("x50", VersionStatus(1, VersionState.END))
    models.set_state("new", VersionStatus(1, VersionState.END))
    models.set_state("loading", VersionStatus(1, VersionState.LOADING))
    models.collect_idle()
    known = []
    for name in ("m", "x49", "x50", "x51", "x52", "x149", "new", "loading"):
        with contextlib.suppress(StatusError):
            known.append((name, states(models, name)))
    ended = {1: "END"}
    assert known == [
        *((name, ended) for name in ("x50", "x52", "x149", "new")),
        ("loading", {1: "LOADING"}),
    ]


def test_a_model_that_is_gone_is_forgotten_after_those_that_went_before(models):
    for number in range(100):
        models.set_state(f"x{number}", VersionStatus(1, VersionState.END))
    models.unload("m", 1)
    models.unload("m", 3)
    models.configure({"other": {}})
    models.collect_idle()
    assert states(models, "m") == {1: "END", 3: "END"}
    with pytest.raises(StatusError):
        models.status("x0")
