"""Run the notebooks of docs/notebooks and store what their cells put out.

`make notebooks` runs it. Each notebook runs in a process and an empty folder of its
own, with the library of this checkout. One whose output holds a warning or a path of
this machine stays as it was.
"""

import argparse
import base64
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

_START = 300  # seconds that a kernel may take to start on a busy machine
# Lines that ScaNN writes in C++ about its work, whatever is set.
_NOTE = re.compile(r"(I\d{4} |WARNING: All log messages before absl).*\n?")
_COLORS = 128  # of a stored figure: half the size, and no difference to be seen


def run(notebook: Path) -> None:
    """Run a notebook and store its outputs in it.

    Args:
        notebook: The file, which is replaced.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell failed.
        ValueError: A cell wrote to the standard error, or a path of this machine.
    """
    content: Any = nbformat.read(notebook, as_version=4)
    # What TensorFlow says of processors and missing GPUs is about this machine.
    os.environ |= {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            content,
            timeout=None,
            startup_timeout=_START,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
        for cell in content.cells:
            kept = [o for o in cell.get("outputs", ()) if not _is_note(o)]
            if "outputs" in cell:
                cell.outputs = kept
        for text in _texts(content):
            for path in (folder, str(ROOT), str(Path.home()), sys.prefix):
                if path in text:
                    raise ValueError(f"{notebook.name} puts out a path: {text[:300]}")
    for output in _outputs(content):
        data = output.get("data", {})
        if "image/png" in data:
            data["image/png"] = _smaller(data["image/png"])
    content.metadata = {
        "kernelspec": content.metadata.kernelspec,
        "language_info": {"name": "python"},
    }
    nbformat.write(content, notebook)


def _outputs(content: Any) -> Iterator[Any]:
    for cell in content.cells:
        yield from cell.get("outputs", ())


def _is_note(output: Any) -> bool:
    lines = output.get("text", "").splitlines()
    return output.get("name") == "stderr" and all(map(_NOTE.fullmatch, lines))


def _texts(content: Any) -> Iterator[str]:
    """Return each text that the cells put out.

    Raises:
        ValueError: One is of the standard error.
    """
    for output in _outputs(content):
        if output.get("name") == "stderr":
            raise ValueError(f"A cell wrote to the standard error: {output.text[:300]}")
        yield output.get("text", "")
        yield from map(str, output.get("data", {}).values())


def _smaller(png: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    small = io.BytesIO()
    image.quantize(_COLORS, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def main() -> None:
    """Run the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, default=NOTEBOOKS)
    for notebook in parser.parse_args().notebooks:
        print(notebook.name, flush=True)
        run(notebook)


if __name__ == "__main__":
    main()
