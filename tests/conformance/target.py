"""The server that is checked: one that is named, or our own, in this process or not."""

import contextlib
import os
from dataclasses import dataclass

import httpx2

from tests.support.running_endpoint import endpoint_here, running_endpoint

SIZE, DIMENSION = 16, 8

MODELS_CONFIG = """
model_config_list {{
  config {{
    name: "demo"
    base_path: "{base_path}"
    model_platform: "tensorflow"
    model_version_policy {{ specific {{ versions: 1 versions: 2 }} }}
    version_labels {{ key: "stable" value: 1 }}
    version_labels {{ key: "canary" value: 2 }}
  }}
}}
"""
MONITORING_CONFIG = """
prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }
"""


@dataclass(frozen=True)
class Target:
    """A server, and the image embedder in it.

    Attributes:
        rest: Address of the REST port, such as `http://127.0.0.1:8501`.
        grpc: Host and port of gRPC.
        model: Name of the model.
        version: The version that answers where none is named.
        label: A label of the model; None if there is none.
        labeled_version: The version that its metadata name; None without a label.
        size: Width and height of the model's images.
        dimension: Length of its embeddings.
        is_squashed: Whether all that the model does to an image is to resize it.
        describes_itself: Whether it has the signature `describe`.
        is_own: Whether the test has started the server, with all that can be on.
    """

    rest: str
    grpc: str
    model: str
    version: int
    label: str | None
    labeled_version: int | None
    size: int
    dimension: int
    is_squashed: bool
    describes_itself: bool
    is_own: bool

    @property
    def path(self) -> str:
        """The path of the model over REST."""
        return f"/v1/models/{self.model}"


def named_target() -> Target | None:
    """Read from the environment which server is checked; None if it names none."""
    target = os.environ.get("CONFORMANCE_TARGET")
    if not target:
        return None
    host = target.rpartition(":")[0]
    if not host:
        raise ValueError(
            f"TARGET must be the server's HOST:PORT of REST. Received: {target!r}."
        )
    return _described(
        target,
        os.environ.get("CONFORMANCE_GRPC_TARGET") or f"{host}:8500",
        os.environ.get("CONFORMANCE_MODEL") or "demo",
        label=os.environ.get("CONFORMANCE_LABEL") or None,
        is_own=False,
    )


@contextlib.contextmanager
def target_in_process(folder):
    """Run our endpoint in this process, with a small model in two versions."""
    with endpoint_here(**_files(folder)) as endpoint:
        yield _own(endpoint)


@contextlib.contextmanager
def target_of_own_process(folder):
    """Start our endpoint as users do, in a process of its own."""
    files = _files(folder)
    options = [word for name in files for word in (_option(name), files[name])]
    with running_endpoint(*options) as endpoint:
        yield _own(endpoint)


def _own(endpoint):
    address = endpoint.url.removeprefix("http://")
    return _described(address, endpoint.grpc, "demo", label="stable", is_own=True)


def _option(field):
    return f"--{field.replace('_', '-')}"


def _files(folder):
    """Write the models and the files of configuration; return their options."""
    base_path = folder / "demo"
    _write_models(base_path)
    config, monitoring = folder / "models.config", folder / "monitoring.config"
    config.write_text(MODELS_CONFIG.format(base_path=base_path))
    monitoring.write_text(MONITORING_CONFIG)
    return {"model_config_file": config, "monitoring_config_file": monitoring}


def _write_models(base_path):
    import keras

    from tfdml.export import export_embedder
    from tfdml.models import build_embedder

    for version in (1, 2):
        keras.utils.set_random_seed(version)
        embedder = build_embedder(SIZE, DIMENSION, widths=(8,), pooling="flatten")
        export_embedder(embedder, base_path / str(version))


def _metadata(rest, model, choice=""):
    url = f"{rest}/v1/models/{model}{choice}/metadata"
    reply = httpx2.get(url, timeout=30, trust_env=False)
    return reply.raise_for_status().json()


def _described(address, grpc, model, *, label, is_own):
    rest = f"http://{address}"
    document = _metadata(rest, model)
    labeled = None
    if label is not None:
        labeled = _metadata(rest, model, f"/labels/{label}")["model_spec"]["version"]
    signatures = document["metadata"]["signature_def"]["signature_def"]
    for name, put, wanted in (
        ("serving_default", "inputs", "image_bytes"),
        ("serving_default", "outputs", "embedding"),
        ("tensors", "inputs", "images"),
    ):
        if list(signatures.get(name, {}).get(put, ())) != [wanted]:
            raise ValueError(
                f"The suite needs an embedder that `python -m serving export` wrote. "
                f"{model} has no signature {name!r} with `{wanted}` alone as {put}."
            )

    def sizes(name, put, tensor):
        dims = signatures[name][put][tensor]["tensor_shape"]["dim"]
        return [int(dim["size"]) for dim in dims]

    return Target(
        rest=rest,
        grpc=grpc,
        model=model,
        version=int(document["model_spec"]["version"]),
        label=label,
        labeled_version=None if labeled is None else int(labeled),
        size=sizes("tensors", "inputs", "images")[1],
        dimension=sizes("serving_default", "outputs", "embedding")[1],
        is_squashed=not any(name.startswith("view_") for name in signatures),
        describes_itself="describe" in signatures,
        is_own=is_own,
    )
