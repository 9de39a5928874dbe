"""Models that a running server is told to serve instead, without a real model."""

import contextlib

import pytest

from serving.endpoint.models.config import (
    AllVersions,
    LatestVersions,
    ModelConfig,
    single_model,
)
from serving.web.status import StatusCode, StatusError
from tests.support.watched import (
    FakeModel,
    add,
    damage,
    error_of,
    latest,
    poll,
    refusal,
    started,
    states,
    wait_until,
)


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
    damage(broken, 1)
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


def test_a_broken_version_of_one_model_does_not_stop_a_reload_of_others(
    managed, base, example
):
    watched = started(managed(single_model("m", base)))
    add(example, base, 2)
    damage(base, 2)
    poll(watched)
    other = base.parent / "other"
    add(example, other, 1)
    watched.reload([single_model("m", base), single_model("other", other)])
    assert (latest(watched), latest(watched, "other")) == (1, 1)


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


def test_a_reload_after_close_is_refused(managed, base):
    watched = started(managed(single_model("m", base)))
    watched.close()
    assert refusal(watched, single_model("m", base))[0] == StatusCode.UNAVAILABLE
    assert latest(watched) == 1


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
