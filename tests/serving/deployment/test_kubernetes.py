"""The manifests of serving/deployment/kubernetes agree with each other."""

import re

import pytest
import yaml

from tests.support.deployment_files import (
    BASE,
    CONFIG,
    OVERLAY,
    ROOT,
    container,
    deployments,
    objects,
    of_kind,
)


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_manifests_follow_the_schemas_of_kubernetes(version):
    validator = pytest.importorskip("kubernetes_validate")
    for item in [*objects(), deployments()["endpoint"]]:
        assert validator.validate(item, version, strict=True) == version


def test_kustomizations_name_every_file_and_no_other():
    for folder in (BASE, OVERLAY, CONFIG):
        text = (folder / "kustomization.yaml").read_text("utf-8")
        content = yaml.safe_load(text)
        named = [*content.get("resources", [])]
        named += [patch["path"] for patch in content.get("patches", [])]
        for generator in content.get("configMapGenerator", []):
            named += generator["files"]
        assert all((folder / name).exists() for name in named)
        there = {file.name for file in folder.iterdir()}
        there -= {"kustomization.yaml", "models.canary.config"}
        assert {name for name in named if not name.startswith("..")} == there


@pytest.mark.parametrize("name", ["tfserving", "search", "endpoint"])
def test_pods_keep_to_the_restricted_standard(name):
    pod = deployments()[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container(deployments()[name])["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    volumes = [set(volume) - {"name"} for volume in pod["volumes"]]
    assert set.union(*volumes) <= {"persistentVolumeClaim", "projected", "emptyDir"}
    (namespace,) = of_kind("Namespace").values()
    levels = namespace["metadata"]["labels"]
    assert levels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", ["tfserving", "search", "endpoint"])
def test_rollout_takes_no_pod_away_before_another_is_ready(name):
    spec = deployments()[name]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    runs = container(deployments()[name])
    assert {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle"} <= set(runs)
    pause = int(runs["lifecycle"]["preStop"]["exec"]["command"][1])
    # Our servers let requests run for 20 seconds after SIGTERM.
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > pause + 20


def test_calls_of_the_youngest_grpc_connection_end_before_the_kill():
    """gRPC varies the age by 10 %; TF Serving answers until it is killed."""
    deployment = deployments()["tfserving"]
    (given,) = (
        argument.partition("=")[2]
        for argument in container(deployment)["args"]
        if argument.startswith("--grpc_channel_arguments=")
    )
    milliseconds = {k: int(v) for k, v in (p.split("=") for p in given.split(","))}
    pause = container(deployment)["lifecycle"]["preStop"]["exec"]["command"][1]
    age = 1.1 * milliseconds["grpc.max_connection_age_ms"] / 1000
    grace = milliseconds["grpc.max_connection_age_grace_ms"] / 1000
    assert grace >= 30
    pod = deployment["spec"]["template"]["spec"]
    seconds = pod["terminationGracePeriodSeconds"]
    assert int(pause) + age + grace + 10 <= seconds
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    assert f"period of {seconds} seconds ends" in page


@pytest.mark.parametrize("name", ["tfserving", "search", "endpoint"])
def test_ports_of_a_pod_are_those_of_its_command(name):
    runs = container(deployments()[name])
    declared = {port["containerPort"] for port in runs["ports"]}
    given = re.findall(r"--(?:\w+[-_])*port=(\d+)", " ".join(runs["args"]))
    assert declared == {int(port) for port in given}
    names = {port["name"] for port in runs["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert runs[probe]["httpGet"]["port"] in names


def test_selectors_find_the_pods_of_their_deployment():
    pods = {
        name: deployment["spec"]["template"]["metadata"]["labels"]
        for name, deployment in of_kind("Deployment").items()
    }
    for name, deployment in of_kind("Deployment").items():
        assert deployment["spec"]["selector"]["matchLabels"] == pods[name]
    for name, budget in of_kind("PodDisruptionBudget").items():
        assert budget["spec"]["selector"]["matchLabels"] == pods[name]
    for name, service in of_kind("Service").items():
        target = name.removesuffix("-grpc")
        assert service["spec"]["selector"] == pods[target]
        ports = {p["name"] for p in container(of_kind("Deployment")[target])["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    (scaler,) = of_kind("HorizontalPodAutoscaler").values()
    assert scaler["spec"]["scaleTargetRef"]["name"] in pods
    # The share of a processor that the autoscaler looks at is one of this request.
    scaled = of_kind("Deployment")[scaler["spec"]["scaleTargetRef"]["name"]]
    assert "replicas" not in scaled["spec"]
    assert "cpu" in container(scaled)["resources"]["requests"]


def test_volumes_of_pods_are_there():
    generated = yaml.safe_load((CONFIG / "kustomization.yaml").read_text("utf-8"))
    maps = {generator["name"] for generator in generated["configMapGenerator"]}
    used = set()
    for deployment in of_kind("Deployment").values():
        for volume in deployment["spec"]["template"]["spec"]["volumes"]:
            claim = volume.get("persistentVolumeClaim")
            assert claim is None or claim["claimName"] in of_kind(
                "PersistentVolumeClaim"
            )
            sources = volume.get("projected", {"sources": []})["sources"]
            used |= {source["configMap"]["name"] for source in sources}
    assert used == maps


def test_search_may_reach_the_model_and_the_world_only_the_page():
    policies = of_kind("NetworkPolicy")
    assert policies["default-deny"]["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }
    labels = {
        name: deployment["spec"]["selector"]["matchLabels"]
        for name, deployment in of_kind("Deployment").items()
    }
    assert "egress" not in policies["tfserving"]["spec"]
    first = policies["tfserving"]["spec"]["ingress"][0]["from"][0]
    assert first["podSelector"]["matchLabels"] == labels["search"]
    first = policies["search"]["spec"]["egress"][0]["to"][0]
    assert first["podSelector"]["matchLabels"] == labels["tfserving"]
