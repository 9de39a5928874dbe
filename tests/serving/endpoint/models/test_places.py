"""Models in the cloud are served, replaced and kept as those on a disk."""

import logging

import pytest

from serving.client import EndpointClient
from serving.endpoint.models.config import (
    ModelConfig,
    parse_model_configs,
    single_model,
)
from serving.endpoint.models.places import ModelPlaces, check_fingerprint
from serving.endpoint.models.watched import WatchedModels
from serving.storage.remote_folder import RemoteFolder
from serving.web.status import StatusCode
from tests.support.cloud import GRAPH, MODEL, Cloud
from tests.support.running_endpoint import endpoint_here
from tests.support.running_s3 import running_s3
from tests.support.search_fixtures import encoded, write_color_model
from tests.support.watched import FakeModel, latest, poll, refusal, wait_until


@pytest.fixture
def cloud():
    cloud = Cloud()
    cloud.upload(1)
    return cloud


@pytest.fixture
def watching(tmp_path):
    """Serve models of a cloud, which is looked at when the test says so."""
    opened = []

    def watch(*configs, folder=None, check=None):
        places = ModelPlaces(folder or tmp_path / "copies", check)
        watched = WatchedModels(configs, poll_seconds=0, load=FakeModel, places=places)
        opened.append(watched)
        return watched, places

    yield watch
    for watched in opened:
        watched.close()


def look(places, watched):
    """Look at the cloud twice, for files that have settled, then at the copies."""
    places.look()
    places.look()
    poll(watched)


def test_a_new_version_in_the_cloud_takes_over(cloud, watching):
    watched, places = watching(ModelConfig("m", cloud))
    watched.start()
    assert latest(watched) == 1
    cloud.upload(2, {GRAPH: b"graph"})
    look(places, watched)
    assert latest(watched) == 1  # half of it
    cloud.upload(2)
    look(places, watched)
    assert latest(watched) == 2
    cloud.remove(2)
    look(places, watched)
    assert latest(watched) == 1


def test_a_cloud_that_refuses_is_logged_once_and_the_model_serves(
    cloud, watching, caplog
):
    watched, places = watching(ModelConfig("m", cloud))
    watched.start()
    cloud.refuses = True
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            look(places, watched)
    (record,) = caplog.records
    assert "Model m stays as it is: s3://cloud cannot be read" in record.message
    assert latest(watched) == 1


def test_a_start_without_cloud_needs_the_copies_of_another(cloud, watching, tmp_path):
    cloud.refuses = True
    with pytest.raises(FileNotFoundError, match="s3://cloud cannot be read"):
        watching(ModelConfig("m", cloud))[0].start()
    cloud.refuses = False
    kept = tmp_path / "kept"
    first, _ = watching(ModelConfig("m", cloud), folder=kept)
    first.start()
    with pytest.raises(ValueError, match="`download_folder` must be a folder of this"):
        ModelPlaces(kept)
    first.close()
    cloud.refuses = True
    second, _ = watching(ModelConfig("m", cloud), folder=kept)
    second.start()
    assert latest(second) == 1


def test_an_empty_base_path_is_named(watching):
    with pytest.raises(FileNotFoundError, match="m at: s3://cloud"):
        watching(ModelConfig("m", Cloud()))[0].start()


def test_a_reload_brings_a_model_from_the_cloud(cloud, watching):
    watched, _ = watching(ModelConfig("m", cloud))
    watched.start()
    other = Cloud()
    other.content = {f"5/{name}": content for name, content in MODEL.items()}
    other.prefix = "other/"
    other.content = {f"other/{path}": each for path, each in other.content.items()}
    watched.reload([ModelConfig("m", cloud), ModelConfig("n", other)])
    assert latest(watched, "n") == 5
    other.refuses = True
    gone = Cloud(prefix="gone/")
    gone.refuses = True
    code, text = refusal(watched, ModelConfig("o", gone))
    assert code is StatusCode.INVALID_ARGUMENT
    assert "s3://cloud/gone cannot be read" in text
    assert latest(watched) == 1


def test_copies_without_a_folder_are_gone_at_the_end(cloud):
    places = ModelPlaces()
    folder = places.brought(ModelConfig("m", cloud))
    assert (folder / "1" / GRAPH).is_file()
    places.close()
    assert not folder.exists()


def test_addresses_stand_where_paths_do(tmp_path):
    assert single_model("m", "s3://bucket/m/").base_path == RemoteFolder(
        "s3://bucket/m"
    )
    text = 'model_config_list { config { name: "m" base_path: "gs://bucket/m" } }'
    (config,) = parse_model_configs(text.encode(), "models.config")
    assert config.base_path == RemoteFolder("gs://bucket/m")
    secret = text.replace("gs://", "s3://key:hidden@")
    with pytest.raises(ValueError, match="must be a bucket and a path") as caught:
        parse_model_configs(secret.encode(), "models.config")
    assert "hidden" not in str(caught.value)


@pytest.mark.slow
def test_only_what_was_exported_is_taken(tmp_path):
    version = write_color_model(tmp_path / "1")
    check_fingerprint(version)
    (file,) = (version / "variables").glob("*.data-*")
    file.write_bytes(bytes(len(file.read_bytes())))
    with pytest.raises(ValueError, match="are not those that were exported"):
        check_fingerprint(version)


@pytest.mark.slow
def test_a_model_in_s3_is_served_and_replaced(monkeypatch, tmp_path):
    write_color_model(tmp_path / "1")
    write_color_model(tmp_path / "2", tint=(1, 0.5, 0.25))
    with running_s3(monkeypatch) as s3:
        s3.mkdir("bucket")
        s3.put(str(tmp_path / "1"), "bucket/models/colors/1", recursive=True)
        with (
            endpoint_here(
                model_name="colors",
                model_base_path="s3://bucket/models/colors",
                file_system_poll_wait_seconds=0.05,
            ) as endpoint,
            EndpointClient(f"{endpoint.url}/v1/models/colors") as client,
        ):
            image = [encoded((90, 90, 90))]
            before = client.embed(image)
            s3.put(str(tmp_path / "2"), "bucket/models/colors/2", recursive=True)
            wait_until(lambda: (client.embed(image) != before).any())
