"""The search process loads no TensorFlow, whatever it is asked for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.search_fixtures import copy_search

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

# Where TensorFlow, Keras and gRPC cannot be imported, as in the image of the page.
WITHOUT = """
import sys
for name in ("tensorflow", "keras", "grpc", "tensorflow_serving"):
    sys.modules[name] = None
"""
PAGE = """
import time
import httpx2
from serving.search.app.app import create_app
from serving.search.gallery.opening import open_search
from tests.support.running_server import running

folder, url = sys.argv[1:]
image = open(f"{folder}/images/red/clear.png", "rb").read()
with (
    open_search(f"{folder}/index", url) as search,
    running(create_app(search, editable=True)) as address,
    httpx2.Client(base_url=address, timeout=60) as page,
):
    files = {"image": ("query", image)}
    hits = page.post("/api/search", files=files, data={"k": 1}).json()["hits"]
    assert hits[0]["id"] == "red/clear.png", hits
    added = page.post("/api/images", files=files, data={"id": "red/new.png"})
    assert added.status_code == 201, added.text
    for path in (
        "/", "/readyz", "/api/info", "/api/images", "/api/images/sample", "/api/stats",
        "/api/duplicates", "/api/map", "/api/similar?id=red/new.png",
        "/images?id=red/new.png",
    ):
        reply, last = page.get(path), time.monotonic() + 60
        while reply.status_code == 202 and time.monotonic() < last:  # it is computed
            time.sleep(0.05)
            reply = page.get(path)
        assert reply.status_code == 200, (path, reply.text)
    reply = page.delete("/api/images", params={"id": "red/new.png"})
    assert reply.status_code in (200, 204), reply.text
"""
LOADED = """
loaded = {name for name, module in sys.modules.items() if module is not None}
loaded &= {"tensorflow", "keras", "jax", "torch"}
assert not loaded, loaded
"""
COMMANDS = """
from serving.__main__ import main

for words in json.loads(sys.argv[1]):
    assert main(words) == 0, words
"""


def run(*parts, arguments):
    done = subprocess.run(
        [sys.executable, "-c", "".join(parts), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_page_answers_every_call_without_tensorflow(colors, colors_url, tmp_path):
    folder = copy_search(colors, tmp_path)
    run(WITHOUT, PAGE, LOADED, arguments=[folder, colors_url])


def test_commands_with_an_endpoint_need_no_tensorflow(colors, colors_url, tmp_path):
    folder = copy_search(colors, tmp_path)
    index, images = str(folder / "index"), folder / "images"
    image = str(images / "red" / "clear.png")
    commands = [
        ["search", image, "--index", index, "--endpoint", colors_url, "--json"],
        *(["index", name, index] for name in ("stats", "verify", "duplicates", "map")),
    ]
    run("import json\n", WITHOUT, COMMANDS, LOADED, arguments=[json.dumps(commands)])
