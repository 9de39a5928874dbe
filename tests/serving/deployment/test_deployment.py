"""The containers of serving/deployment agree with the code and each other."""

import ast
import itertools
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata

import pytest
import trustme
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.__main__ import _parser
from serving.web.access import TokenAccess
from serving.web.config_messages import message_class, read_text_message
from serving.web.tls import read_ssl_config
from tests.support.deployment_files import (
    CONFIG,
    DOCKERFILE,
    FOLDER,
    PORTS,
    ROOT,
    compose,
    container,
    deployments,
    docker,
    of_kind,
    our_commands,
    tf_serving_commands,
)
from tests.support.setup_arguments import setup_arguments

# Of those that TF Serving 2.20 has.
TF_SERVING_FLAGS = {
    "port",
    "rest_api_port",
    "model_config_file",
    "model_config_file_poll_wait_seconds",
    "allow_version_labels_for_unavailable_models",
    "enable_batching",
    "batching_parameters_file",
    "monitoring_config_file",
    "grpc_channel_arguments",
}


def flags(arguments):
    assert all(re.fullmatch(r"--\w+=\S+", argument) for argument in arguments)
    return dict(argument[2:].split("=", 1) for argument in arguments)


def test_dockerfile_passes_hadolint():
    tool = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if tool is None:
        pytest.skip("hadolint is not installed")
    run = subprocess.run(
        [tool, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_compose_file_follows_the_compose_specification():
    pytest.importorskip("check_jsonschema")
    schema = ["--builtin-schema", "vendor.compose-spec"]
    run = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema, FOLDER / "compose.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("place", our_commands())
def test_command_of_ours_parses(place):
    _parser().parse_args(our_commands()[place])


@pytest.mark.parametrize("place", our_commands())
def test_server_listens_beyond_its_container(place):
    parsed = " ".join(our_commands()[place]).replace("=", " ").split()
    assert parsed[parsed.index("--host") + 1] == "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize("place", tf_serving_commands())
def test_command_of_tf_serving_has_flags_that_it_knows(place):
    given = flags(tf_serving_commands()[place])
    assert given.keys() <= TF_SERVING_FLAGS
    # Without both, the server refuses the parameters, or answers gRPC alone.
    assert given["enable_batching"] == "true"
    assert given["rest_api_port"] == str(PORTS["rest"])
    assert given["port"] == str(PORTS["grpc"])


def test_configuration_of_a_command_is_one_of_these_files():
    commands = [*our_commands().values(), *tf_serving_commands().values()]
    named = re.findall(
        r"=/(?:config|etc/tfdml)/([\w.]+)", " ".join(map(" ".join, commands))
    )
    assert set(named) == {
        "models.config",
        "batching_parameters.txt",
        "monitoring.config",
    }
    assert all((CONFIG / name).is_file() for name in named)


@pytest.mark.parametrize("version", ["1", "7"])
def test_index_and_address_name_the_same_version(version):
    """The variable of Compose moves both; the others say 1."""
    commands = {p: c for p, c in our_commands(version).items() if c[0] == "page"}
    assert len(commands) == 3
    for place, command in commands.items():
        index, *options = command[1:]
        (address,) = (word for word in options if "/v1/models/" in word)
        expected = version if place.startswith("compose") else "1"
        assert re.fullmatch(rf"(/galleries)?/indexes/demo/{expected}", index), place
        assert address.endswith(f"/v1/models/demo/versions/{expected}"), place


@pytest.mark.parametrize("name", ["models.config", "models.canary.config"])
def test_labels_are_of_versions_that_are_served(name):
    config = read_text_message(CONFIG / name, ModelServerConfig)
    (model,) = config.model_config_list.config
    assert model.model_platform == "tensorflow"
    served = set(model.model_version_policy.specific.versions)
    assert set(model.version_labels.values()) == served
    assert model.version_labels["stable"] == 1


def test_canary_adds_a_version_and_moves_no_label():
    before, after = (
        read_text_message(CONFIG / name, ModelServerConfig).model_config_list.config[0]
        for name in ("models.config", "models.canary.config")
    )
    assert (before.name, before.base_path) == (after.name, after.base_path)
    assert before.version_labels.items() <= after.version_labels.items()
    old, new = (set(c.model_version_policy.specific.versions) for c in (before, after))
    assert old < new


def test_largest_allowed_batch_is_the_largest_batch():
    parameters = read_text_message(
        CONFIG / "batching_parameters.txt", message_class("BatchingParameters")
    )
    sizes = list(parameters.allowed_batch_sizes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == parameters.max_batch_size.value
    assert parameters.max_enqueued_batches.value >= 1


def test_metrics_are_scraped_where_they_are():
    monitoring = read_text_message(
        CONFIG / "monitoring.config", message_class("MonitoringConfig")
    ).prometheus_config
    assert monitoring.enable
    template = of_kind("Deployment")["tfserving"]["spec"]["template"]
    annotations = template["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == monitoring.path
    assert annotations["prometheus.io/port"] == str(PORTS["rest"])
    assert monitoring.path in (ROOT / "docs" / "deployment.md").read_text("utf-8")


def test_every_address_names_the_configured_model():
    config = read_text_message(CONFIG / "models.config", ModelServerConfig)
    (model,) = config.model_config_list.config
    named = []
    for file in FOLDER.rglob("*"):
        if file.is_file():
            named += re.findall(r"/v1/models/(\w+)", file.read_text("utf-8"))
    assert set(named) == {model.name}
    assert docker("ENV")[-1] == [f"MODEL_NAME={model.name}"]
    for deployment in (deployments()["tfserving"], deployments()["endpoint"]):
        mounts = {m["mountPath"] for m in container(deployment)["volumeMounts"]}
        assert mounts == {"/models", "/config", "/tmp"}  # noqa: S108
        assert model.base_path == f"/models/{model.name}"


def test_dockerfile_copies_what_there_is_and_what_is_let_through():
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        path
        for words in docker("COPY")
        if not words[0].startswith("--from")
        for path in words[:-1]
    }
    assert copied == kept
    assert all((ROOT / path).exists() for path in copied)
    assert "*" in ignored
    assert "serving/deployment" in ignored


def closure_of(requirements):
    """Names of the installed packages that these requirements bring."""
    waiting, found = [Requirement(text) for text in requirements], set()
    waiting = [one for one in waiting if one.marker is None or one.marker.evaluate()]
    while waiting:
        needed = waiting.pop()
        key = needed.name, *sorted(needed.extras)
        if key in found:
            continue
        found.add(key)
        for text in metadata.requires(needed.name) or ():
            further = Requirement(text)
            extras = ("", *needed.extras)
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in extras
            ):
                waiting.append(further)
    return {canonicalize_name(name) for name, *_ in found}


def imports_of(folder):
    """Top-level modules that the code of a folder imports, anywhere in it."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield node.module.partition(".")[0]


def test_image_has_what_serving_imports():
    setup = setup_arguments()
    copied = {words[-2] for words in docker("COPY") if words[-1].endswith(words[-2])}
    extras = setup["extras_require"]
    parts = [extras[name] for name in ("serving", "search", "combine", "tracing")]
    needed = [*setup["install_requires"], *itertools.chain(*parts)]
    # Who has models or images in a cloud adds its extra, which brings fsspec.
    clouds = itertools.chain(extras["s3"], extras["gcs"], extras["azure"])
    cloud = {"fsspec", *(Requirement(each).name for each in clouds)}
    installed = closure_of(needed)
    packages = metadata.packages_distributions()
    imported = set(imports_of(ROOT / "serving")) - sys.stdlib_module_names
    for module in imported - cloud:
        brought = {canonicalize_name(name) for name in packages.get(module, ())}
        assert module in copied or brought & installed, module
    assert {"serving", "tfdml"} <= copied


def test_image_of_the_page_needs_no_tensorflow():
    setup = setup_arguments()
    extra = setup["extras_require"]["search"]
    installed = closure_of([*setup["install_requires"], *extra])
    assert not {name for name in installed if "tensorflow" in name}
    # As where nothing else is installed.
    others = [
        module
        for module, names in metadata.packages_distributions().items()
        if not {canonicalize_name(name) for name in names} & installed
        and module not in ("serving", "tfdml")
    ]
    assert {"tensorflow", "grpc_health"} <= {*others}
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({others})); "
        "import serving.search.app.app, sklearn.manifold"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_dockerfile_installs_extras_that_there_are():
    stages = re.split(r"^FROM ", DOCKERFILE.read_text("utf-8"), flags=re.MULTILINE)
    found = {
        stage.split()[2]: set(extras.split(","))
        for stage in stages
        for extras in re.findall(r"'\.\[([\w,]+)\]'", stage)
    }
    assert found == {
        "search-packages": {"search", "tracing"},
        "endpoint-packages": {"serving", "combine", "tracing"},
    }
    known = setup_arguments()["extras_require"]
    assert set().union(*found.values()) <= known.keys()
    for image in ("search", "endpoint"):
        (stage,) = (one for one in stages if one.startswith(f"runtime AS {image}\n"))
        assert f"COPY --from={image}-packages /opt/venv /opt/venv" in stage


def test_images_run_without_root_and_hear_signals():
    assert docker("USER") == [["10001:10001"]]
    assert docker("ENTRYPOINT") == [["python", "-m", "serving"]]
    assert len(docker("HEALTHCHECK")) == 2


def test_images_have_version_tags():
    setup = setup_arguments()
    services = compose()["services"].values()
    images = {service["image"] for service in services}
    images |= {container(deployment)["image"] for deployment in deployments().values()}
    (api,) = (
        requirement
        for requirement in setup["extras_require"]["serving"]
        if requirement.startswith("tensorflow-serving-api")
    )
    assert Requirement(api).specifier.contains("2.20.0")
    assert images == {
        "tensorflow/serving:2.20.0",
        f"tfdml-endpoint:{setup['version']}",
        f"tfdml-search:{setup['version']}",
    }
    stages = {words[-1] for words in docker("FROM")}
    for image, *_ in docker("FROM"):
        assert image in stages or re.fullmatch(r"python:3\.11-slim-\w+", image)


def test_ports_of_the_image_are_those_of_the_commands():
    assert docker("EXPOSE") == [["8000"], ["8500", "8501"]]
    for name, options in (("run", ("port", "grpc_port")), ("page", ("port",))):
        (command,) = (c for c in docker("CMD") if c[0] == name)
        parsed = vars(_parser().parse_args(command))
        exposed = set(itertools.chain(*docker("EXPOSE")))
        assert {str(parsed[option]) for option in options} <= exposed


def test_compose_publishes_to_this_machine_alone():
    for name, service in compose()["services"].items():
        ports = [port.split(":") for port in service["ports"]]
        assert all(host == "127.0.0.1" for host, _, _ in ports)
        expected = {"search": {"8000"}}.get(name, {"8500", "8501"})
        assert {inside for _, _, inside in ports} == expected


def test_compose_services_are_confined_and_come_back():
    for service in compose()["services"].values():
        assert service["read_only"] is True
        assert service["restart"] == "unless-stopped"
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == "10001:10001"
        assert service["deploy"]["resources"]["limits"].keys() >= {"cpus", "memory"}
        assert all(volume["read_only"] for volume in service["volumes"])


def test_each_profile_has_one_model_server_behind_one_name():
    services = compose()["services"]
    (address,) = (
        argument
        for argument in services["search"]["command"]
        if argument.startswith("--endpoint=")
    )
    for name in ("tfserving", "endpoint"):
        assert services[name]["profiles"] == [name]
        (alias,) = services[name]["networks"]["default"]["aliases"]
        assert address.startswith(f"--endpoint=http://{alias}:{PORTS['rest']}/")
    assert services["search"]["profiles"] == ["tfserving", "endpoint"]
    assert services["search"]["depends_on"].keys() == {"tfserving", "endpoint"}


# The page.


def test_commands_of_the_page_make_the_files_that_the_unit_names(tmp_path):
    """Its lines run in a folder; those that install, fetch or start are left out."""
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    section = page.partition("\n## One machine\n")[2]
    script = section.partition("```bash\n")[2].partition("```")[0]
    others = ("apt-get", "git clone", "python3 -m venv", "systemctl", "journalctl")
    lines = [
        line
        for line in script.splitlines()
        if not line.startswith((*others, "curl")) and " install --editable" not in line
    ]
    etc, work = tmp_path / "etc" / "tfdml", tmp_path / "work"
    for path in ("etc/systemd/system", "srv", "opt/tfdml/.venv/bin", "work/demo/1"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "opt/tfdml/.venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "opt/tfdml/serving").symlink_to(ROOT / "serving")
    (work / "demo/1/saved_model.pb").write_bytes(b"")
    certificate = trustme.CA().issue_cert("host.example")
    certificate.private_key_pem.write_to_path(work / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(work / "cert.pem")
    moved = re.sub(r"(?<=[ '\"#])/(etc|opt|srv)/", rf"{tmp_path}/\1/", "\n".join(lines))
    moved = re.sub(r"^/opt/", f"{tmp_path}/opt/", moved, flags=re.MULTILINE)
    subprocess.run(["bash", "-euc", moved], cwd=work, check=True)

    unit = (tmp_path / "etc/systemd/system/tfdml-endpoint.service").read_text("utf-8")
    named = set(re.findall(r"[=:]/etc/tfdml/([\w.]+)", unit))
    assert named == {
        "models.config",
        "batching_parameters.txt",
        "monitoring.config",
        "ssl.config",
        "token",
    }
    assert all((etc / name).is_file() for name in named)
    for name in ("ssl.config", "token"):
        assert (etc / name).stat().st_mode & 0o777 == 0o600
    TokenAccess(etc / "token").check(f"Bearer {(etc / 'token').read_text().strip()}")
    tls = read_ssl_config(etc / "ssl.config")
    assert tls.server_key == certificate.private_key_pem.bytes()
    assert tls.server_cert == certificate.cert_chain_pems[0].bytes()
    config = read_text_message(etc / "models.config", ModelServerConfig)
    (model,) = config.model_config_list.config
    assert (ROOT / model.base_path / "1" / "saved_model.pb").is_file()


def test_unit_says_that_credentials_are_copies():
    unit = (FOLDER / "tfdml-endpoint.service").read_text("utf-8")
    before = unit.partition("\nLoadCredential=")[0].rpartition("\n\n")[2]
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    for text in (before, page):
        assert "stays valid" in text
        assert "systemctl restart tfdml-endpoint" in text


def test_files_that_the_page_names_are_there():
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    named = set(re.findall(r"(?<![\w-])(?<!tests/)serving/deployment/[\w./-]*\w", page))
    assert len(named) >= 5
    assert all((ROOT / name).exists() for name in named)


def test_every_command_of_the_page_parses():
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    found = re.findall(r"tfdml ((?:serve|index|page) [^`\n]*)", page)
    assert len(found) == 3
    for command in found:
        _parser().parse_args(shlex.split(command))


def test_yaml_of_the_page_can_be_read():
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    blocks = re.findall(r"^( *)```yaml\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for _, block in blocks:
        assert yaml.safe_load(block)
