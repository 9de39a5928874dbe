"""Code of docs/scale-out.md that needs processes, or an engine, of its own."""

import importlib.util
import json
import os
import re
from pathlib import Path

import pytest

from serving.search.gallery.gallery import load_gallery
from tests.support.autodiff import BACKEND
from tests.support.search_fixtures import write_color_model, write_gallery_images
from tests.support.worker_processes import ROOT, free_addresses, run_together

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND != "tensorflow", reason="each names its own backend"),
]


def block(label):
    """The one block of the page that is marked "```python LABEL"."""
    text = (ROOT / "docs" / "scale-out.md").read_text("utf-8")
    (code,) = re.findall(rf"^```python {label}\n(.*?)^```", text, re.M | re.S)
    return code


def test_every_marked_block_has_its_test():
    text = (ROOT / "docs" / "scale-out.md").read_text("utf-8")
    marked = re.findall(r"^```python (.+)$", text, re.MULTILINE)
    assert sorted(marked) == ["jax", "jax workers", "ray", "workers"]


@pytest.mark.full  # tests/tfdml/models/test_multi_worker.py does the same
def test_two_tensorflow_workers_print_the_same_losses():
    tasks = [{"type": "worker", "index": i} for i in range(2)]
    workers = {"worker": free_addresses(2)}
    configs = [json.dumps({"cluster": workers, "task": task}) for task in tasks]
    first, second = run_together(
        ["-c", block("workers") + "\nprint(strategy.num_replicas_in_sync)"],
        [{"KERAS_BACKEND": "tensorflow", "TF_CONFIG": c} for c in configs],
    )
    assert first == second
    losses, replicas = first.splitlines()
    assert len(json.loads(losses)) == 2
    assert replicas == "2"


@pytest.mark.full
def test_two_jax_workers_print_the_same_losses():
    shared = {"COORDINATOR": free_addresses(1)[0], "WORKERS": "2"}
    first, second = run_together(
        ["-c", block("jax workers")],
        [{"KERAS_BACKEND": "jax", **shared, "WORKER": str(i)} for i in range(2)],
    )
    assert first.splitlines()[-1] == second.splitlines()[-1]
    assert len(json.loads(first.splitlines()[-1])) == 2


def test_jax_trains_on_two_devices():
    two = "--xla_force_host_platform_device_count=2"
    code = block("jax") + "\nprint(len(model.weights[0].value.sharding.device_set))\n"
    environment = {"KERAS_BACKEND": "jax", "XLA_FLAGS": two}
    assert run_together(["-c", code], [environment]) == ["2\n"]


# What the page uses of Ray, in one process; Ray itself is used where it is installed.
RAY = """
def init(*args, **kwargs): pass
def get(results): return results
def remote(*args, **kwargs):
    def wrap(function):
        function.remote = function
        return function
    return wrap(*args) if args else wrap
"""


def test_ray_embeds_two_shards_that_become_an_index(tmp_path):
    write_color_model(tmp_path / "models" / "demo" / "1")
    write_gallery_images(tmp_path / "photos")
    code = block("ray").replace("/mnt/shared", str(tmp_path))
    code = code.replace("from tfdml.serving", "from serving")  # as in a checkout
    assert str(tmp_path) in code
    if not importlib.util.find_spec("ray"):
        (tmp_path / "ray.py").write_text(RAY)
    search_path = os.pathsep.join(
        [str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")]
    )
    environment = {"PYTHONPATH": search_path, "RAY_USAGE_STATS_ENABLED": "0"}
    (text,) = run_together(["-c", code], [environment])
    assert "9 images of 3 classes indexed" in text
    assert load_gallery(tmp_path / "indexes" / "photos")[0].count() == 9
    assert sorted(p.name for p in Path(tmp_path, "shards").iterdir()) == ["1", "2"]
