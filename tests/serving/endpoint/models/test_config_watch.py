"""A `models.config` that changes while the server runs."""

import threading
from pathlib import Path

import pytest

from serving.endpoint.models.config import (
    parse_model_configs,
    single_model,
)
from serving.endpoint.models.config_watch import ConfigWatch
from tests.support.watched import (
    WAIT_SECONDS,
    add,
    latest,
    started,
)


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
