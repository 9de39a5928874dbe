from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving.endpoint.models.config import (
    AllVersions,
    LatestVersions,
    ModelConfig,
    SpecificVersions,
    model_configs_of,
    parse_model_configs,
    single_model,
)

CONFIG = """
model_config_list {
  config {
    name: "latest"
    base_path: "/models/latest"
    model_platform: "tensorflow"
  }
  config {
    name: "two"
    base_path: "/models/two"
    model_version_policy { latest { num_versions: 2 } }
  }
  config {
    name: "all"
    base_path: "/models/all"
    model_version_policy { all {} }
  }
  config {
    name: "some"
    base_path: "/models/some"
    model_version_policy { specific { versions: 3 versions: 9 } }
    version_labels { key: "stable" value: 3 }
    version_labels { key: "canary" value: 9 }
  }
}
"""


def parse(text):
    return text_format.Parse(text, model_server_config_pb2.ModelServerConfig())


def one(fields):
    return parse(f'model_config_list {{ config {{ base_path: "/m" {fields} }} }}')


def test_a_file_is_read_whole_and_in_its_order():
    assert parse_model_configs(CONFIG.encode(), "models.config") == [
        ModelConfig("latest", Path("/models/latest"), LatestVersions(1), {}),
        ModelConfig("two", Path("/models/two"), LatestVersions(2), {}),
        ModelConfig("all", Path("/models/all"), AllVersions(), {}),
        ModelConfig(
            "some",
            Path("/models/some"),
            SpecificVersions(frozenset({3, 9})),
            {"stable": 3, "canary": 9},
        ),
    ]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (LatestVersions(), {10}),
        (LatestVersions(2), {8, 10}),
        (LatestVersions(9), {1, 2, 8, 10}),
        (AllVersions(), {1, 2, 8, 10}),
        (SpecificVersions(frozenset({2, 9, 11})), {2}),
    ],
)
def test_a_policy_chooses_among_complete_versions(policy, wanted):
    versions = frozenset({1, 2, 8, 9, 10})
    assert policy.wanted(versions, lambda version: version != 9) == wanted
    assert policy.wanted(frozenset(), lambda version: True) == set()


def test_a_look_at_the_latest_version_does_not_look_at_the_older_ones():
    asked = []
    LatestVersions(1).wanted(
        frozenset(range(1000)), lambda version: asked.append(version) or True
    )
    assert asked == [999]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ("", "`name` of a model must have at least one character"),
        ('name: "a/b"', "neither '/' nor ':'. Received: name='a/b'"),
        ('name: "a:b"', "neither '/' nor ':'"),
        ('name: "m" model_platform: "torch"', "unsupported platform torch"),
        ('name: "m" model_type: TENSORFLOW', "`model_type` is not supported"),
        ('name: "m" logging_config {}', "must not have a `logging_config`"),
        (
            'name: "m" model_version_policy { specific {} }',
            "of model m: `specific` must name at least one version",
        ),
        (
            'name: "m" model_version_policy { specific { versions: -1 } }',
            "must be at least 0 and fit 64 bits. Received: -1",
        ),
        (
            'name: "m" version_labels { key: "a-b" value: 1 }',
            "made of letters, digits and '_'. Received: 'a-b'",
        ),
        (
            'name: "m" version_labels { key: "a" value: -2 }',
            "version_labels of model m.* Received: -2",
        ),
    ],
)
def test_each_broken_rule_is_named_with_its_value(fields, error):
    with pytest.raises(ValueError, match=error):
        model_configs_of(one(fields))


def test_a_relative_base_path_and_a_name_twice_have_the_texts_of_tf_serving():
    message = one('name: "m"')
    message.model_config_list.config[0].base_path = "models/m"
    text = "Expected model m to have an absolute path or URI; got base_path.*=models/m"
    with pytest.raises(ValueError, match=text):
        model_configs_of(message)
    message = one('name: "m"')
    message.model_config_list.config.add(name="m", base_path="/n")
    text = "Illegal to list model m multiple times in config list"
    with pytest.raises(ValueError, match=text):
        model_configs_of(message)


def test_only_a_list_of_models_is_a_configuration():
    with pytest.raises(ValueError, match="Received: custom_model_config"):
        model_configs_of(parse("custom_model_config {}"))
    # A file that is being written is empty at first, and must not unload all models.
    with pytest.raises(ValueError, match=r"models\.config.*must have.*an empty one"):
        parse_model_configs(b"", "models.config")
    assert model_configs_of(parse("model_config_list {}")) == []


def test_a_file_that_is_no_configuration_is_refused_with_the_line():
    content = b"model_config_list {\n  config { nome: 'm' }\n}"
    with pytest.raises(ValueError, match=r"models\.config.*2:12.*nome"):
        parse_model_configs(content, "models.config")
    with pytest.raises(ValueError, match=r"models\.config must hold .*utf-8"):
        parse_model_configs(b"\xff", "models.config")


def test_a_single_model_may_have_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = single_model("m", "models/m")
    assert config == ModelConfig("m", tmp_path / "models" / "m")
    assert config.policy == LatestVersions(1)
    with pytest.raises(ValueError, match="`name`"):
        single_model("a/b", "models/m")


def test_at_least_one_version_is_the_latest():
    with pytest.raises(ValueError, match=r"`count` must be at least 1. Received: 0"):
        LatestVersions(0)
