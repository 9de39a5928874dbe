"""The table of docs/deployment.md names every option of both servers, once."""

import re

import pytest

from serving.__main__ import _parser
from tests.support.deployment_files import ROOT

# The flags of tensorflow_model_server 2.20, in the order of its main.cc.
FLAGS = re.findall(
    r"\w+",
    """
    port grpc_socket_path rest_api_port rest_api_num_threads rest_api_timeout_in_ms
    rest_api_enable_cors_support enable_batching
    allow_version_labels_for_unavailable_models batching_parameters_file
    enable_per_model_batching_parameters model_config_file
    model_config_file_poll_wait_seconds model_name model_base_path num_load_threads
    num_unload_threads max_num_load_retries load_retry_interval_micros
    file_system_poll_wait_seconds flush_filesystem_caches
    tensorflow_session_parallelism tensorflow_session_config_file
    tensorflow_intra_op_parallelism tensorflow_inter_op_parallelism
    use_alts_credentials ssl_config_file platform_config_file
    per_process_gpu_memory_fraction saved_model_tags grpc_channel_arguments
    grpc_max_threads enable_model_warmup num_request_iterations_for_warmup version
    monitoring_config_file remove_unused_fields_from_bundle_metagraph
    prefer_tflite_model num_tflite_pools num_tflite_interpreters_per_pool
    enable_signature_method_name_check xla_cpu_compilation_enabled
    xla_gpu_compilation_enabled enable_profiler thread_pool_factory_config_file
    mixed_precision skip_initialize_tpu enable_grpc_healthcheck_service
    enable_serialization_as_tensor_content
    """,
)


def rows():
    """Return flags of TF Serving and options of ours, row by row."""
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    table = page.partition("\n## Options\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [line.split("|")[1:4] for line in lines[2:]]


def test_each_flag_of_tf_serving_is_named_once():
    named = [name for theirs, *_ in rows() for name in re.findall(r"--(\w+)", theirs)]
    assert sorted(named) == sorted(FLAGS)


def test_a_flag_that_is_missing_says_why():
    for theirs, ours, why in rows():
        assert theirs.strip() == "none" or ours.strip() != "none" or why.strip(), theirs


def test_each_option_of_the_endpoint_is_named(capsys):
    with pytest.raises(SystemExit):
        _parser().parse_args(["run", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    named = re.findall(r"--[a-z-]+[a-z]", " ".join(row[1] for row in rows()))
    assert len(named) == len(set(named))
    assert set(named) | {"--no-batching"} == options
