"""Versions whose files are no longer those that were exported."""

import json
import shutil

import httpx2
import pytest

from serving.endpoint.models.config import single_model
from serving.endpoint.models.fingerprint import load_checked
from serving.endpoint.models.saved_model import model_fingerprint
from serving.web.status import StatusCode, StatusError
from tests.support.example_model import png
from tests.support.running_endpoint import endpoint_here
from tests.support.running_grpc import channel_to, predict_request
from tests.support.watched import error_of, latest, poll, started, states

# In the graph of the example model: the divisor 3 of an output, as a float64.
DIVISOR = b"\0\0\0\0\0\0\x08@"


@pytest.fixture
def base(tmp_path, example_model):
    """A base path whose version 1 says which fingerprint it has."""
    folder = tmp_path / "example" / "1"
    shutil.copytree(example_model, folder)
    describe(folder, model_fingerprint(folder))
    return folder.parent


def describe(folder, fingerprint):
    (folder / "assets").mkdir(exist_ok=True)
    text = json.dumps({"format": 1, "fingerprint": fingerprint})
    (folder / "assets" / "tfdml.json").write_text(text)


def change_constant(folder):
    """Let the model divide by 2 what it divided by 3; it loads as before."""
    graph = folder / "saved_model.pb"
    content = graph.read_bytes()
    assert DIVISOR in content
    graph.write_bytes(content.replace(DIVISOR, b"\0\0\0\0\0\0\0@"))


def change_weights(folder):
    with (folder / "variables" / "variables.index").open("ab") as file:
        file.write(b"x")


def damage_description(folder):
    (folder / "assets" / "tfdml.json").write_text('{"format": 1, "finger')


def test_unchanged_version_is_loaded_and_knows_its_fingerprint(base):
    expected = model_fingerprint(base / "1")
    assert load_checked("m", 1, base / "1").fingerprint == expected


@pytest.mark.parametrize("fingerprint", [None, False])
def test_version_that_names_no_fingerprint_is_loaded(base, fingerprint):
    if fingerprint is None:
        describe(base / "1", None)
    else:
        shutil.rmtree(base / "1" / "assets")
    loaded = load_checked("m", 1, base / "1")
    assert loaded.fingerprint == model_fingerprint(base / "1")


@pytest.mark.parametrize(
    "change", [change_constant, change_weights, damage_description]
)
def test_changed_version_is_refused_with_what_to_do(base, change):
    change(base / "1")
    with pytest.raises(StatusError) as caught:
        load_checked("m", 1, base / "1")
    assert caught.value.code == StatusCode.DATA_LOSS
    assert caught.value.message.startswith("Version 1 of model 'm' has changed since")
    assert str(base / "1") in caught.value.message
    assert "--no-fingerprint-check" in caught.value.message


def test_changed_version_never_replaces_one_that_serves(base, managed):
    watched = started(managed(single_model("m", base), load=load_checked))
    shutil.copytree(base / "1", base / "2")
    change_constant(base / "2")
    poll(watched)
    assert (latest(watched), states(watched)) == (1, {1: "AVAILABLE", 2: "END"})
    code, message = error_of(watched, 2)
    assert code == StatusCode.DATA_LOSS
    assert "has changed since its export" in message


@pytest.mark.parametrize("is_checked", [True, False])
def test_answers_of_both_protocols_name_a_fingerprint_that_was_checked(
    base, is_checked
):
    if not is_checked:
        change_constant(base / "1")
    options = {} if is_checked else {"no_fingerprint_check": True}
    expected = model_fingerprint(base / "1") if is_checked else None
    with endpoint_here(
        model_name="example", model_base_path=base, **options
    ) as endpoint:
        url = f"{endpoint.url}/v1/models/example"
        with httpx2.Client(trust_env=False) as client:
            for answer in (
                client.post(f"{url}:predict", content=b"no JSON"),
                client.get(f"{url}/metadata"),
            ):
                assert answer.headers.get("x-model-fingerprint") == expected
            status = client.get(url)
            assert "x-model-fingerprint" not in status.headers
        with channel_to(endpoint.grpc) as stubs:
            request = predict_request({"image_bytes": [png(1, 2, 3)]})
            _, call = stubs.prediction.Predict.with_call(request, timeout=60)
    metadata = dict(call.trailing_metadata())
    assert metadata.get("x-model-fingerprint") == expected
    assert metadata["x-request-id"]
