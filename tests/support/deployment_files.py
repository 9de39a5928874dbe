"""What the files of serving/deployment hold, parsed, shared by their tests."""

import copy
import functools
import json
import re
import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "serving" / "deployment"
CONFIG = FOLDER / "config"
DOCKERFILE = FOLDER / "Dockerfile"
BASE = FOLDER / "kubernetes" / "base"
OVERLAY = FOLDER / "kubernetes" / "endpoint"
PORTS = {"grpc": 8500, "rest": 8501, "page": 8000}


def objects():
    """All Kubernetes objects of the base."""
    return copy.deepcopy(_objects())


@functools.cache
def _objects():
    files = sorted(BASE.glob("*.yaml"))
    found = [o for file in files for o in yaml.safe_load_all(file.read_text("utf-8"))]
    return [item for item in found if item["kind"] != "Kustomization"]


def of_kind(kind):
    return {o["metadata"]["name"]: o for o in objects() if o["kind"] == kind}


def merged(base, patch):
    """Merge as kustomize does: lists of objects go by name, null deletes."""
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(base.get(key, {}), value)
        elif value and isinstance(value[0], dict):
            changes = {item["name"]: item for item in value}
            assert changes.keys() <= {item["name"] for item in base[key]}
            result[key] = [merged(i, changes.get(i["name"], {})) for i in base[key]]
        else:
            result[key] = value
    return result


def deployments():
    """The Deployments of the base, and that of the overlay as `endpoint`."""
    patch = yaml.safe_load((OVERLAY / "model-server.yaml").read_text("utf-8"))
    found = of_kind("Deployment")
    return found | {"endpoint": merged(found["tfserving"], patch)}


def container(deployment):
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return only


@functools.cache
def compose(version="1"):
    """The compose file, VERSION set, its other variables at their defaults."""
    text = (FOLDER / "compose.yaml").read_text("utf-8")
    text = text.replace("${VERSION:-1}", version)
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def docker(word):
    """The instructions of one kind, a JSON list as a list, others as words."""
    text = DOCKERFILE.read_text("utf-8").replace("\\\n", " ")
    rows = re.findall(rf"^\s*{word} +(.*)$", text, re.MULTILINE)
    return [json.loads(row) if row.startswith("[") else row.split() for row in rows]


def our_commands(version="1"):
    """Every command line of `python -m serving` in these files, by its place.

    `version` is what Compose has as VERSION.
    """
    unit = (FOLDER / "tfdml-endpoint.service").read_text("utf-8").replace("\\\n", " ")
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    words = shlex.split(start)
    assert words[1:3] == ["-m", "serving"]
    commands = {"systemd": words[3:]}
    checks = ("python", "-c")
    for command in docker("CMD"):
        if tuple(command[:2]) != checks:
            commands[f"Dockerfile {command[0]}"] = command
    for name in ("endpoint", "search"):
        commands[f"compose {name}"] = compose(version)["services"][name]["command"]
        commands[f"kubernetes {name}"] = container(deployments()[name])["args"]
    return commands


def tf_serving_commands():
    return {
        "compose": compose()["services"]["tfserving"]["command"],
        "kubernetes": container(deployments()["tfserving"])["args"],
    }
