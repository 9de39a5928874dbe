"""The notebooks run, and hold what they put out, for readers who do not run them."""

import base64
import json
from pathlib import Path

import keras
import pytest

from tests.support.docs_script import docs_script

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 300_000  # bytes of a file
notebooks = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def usual_precision():
    """Undo what a notebook sets for all layers."""
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@pytest.mark.slow
@notebooks
def test_notebooks_run(notebook, tmp_path, monkeypatch, usual_precision):
    for package in ("matplotlib", "sklearn", "tensorflow"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook"}
    for number, cell in enumerate(code_cells(notebook), 1):
        name = f"{notebook.name}, cell {number}"
        exec(compile("".join(cell["source"]), name, "exec"), names)  # noqa: S102


@notebooks
def test_stored_outputs_can_be_read_as_they_are(notebook):
    assert notebook.stat().st_size < LARGEST
    cells = code_cells(notebook)
    numbers = [cell["execution_count"] for cell in cells]
    assert numbers == list(range(1, len(cells) + 1)), "run `make notebooks`"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error"]
    assert not [o for o in outputs if o.get("name") == "stderr"]
    assert any("image/png" in output.get("data", ()) for output in outputs)


@pytest.fixture
def script():
    """docs/run_notebooks.py, which renews the outputs."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    return docs_script("run_notebooks")


@pytest.fixture
def written(tmp_path):
    """Write a notebook of these cells."""
    nbformat = pytest.importorskip("nbformat")

    def write(*sources):
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = nbformat.v4.new_notebook(
            cells=cells, metadata={"kernelspec": kernel}
        )
        nbformat.write(notebook, tmp_path / "a.ipynb")
        return tmp_path / "a.ipynb"

    return write


@pytest.mark.slow
def test_script_stores_text_and_figures(script, written):
    notebook = written(
        "from tfdml.figure_style import new_figure\nopen('here', 'w').close()\n1 + 1",
        "new_figure(2, 1)",
    )
    script.run(notebook)
    (number,), (figure,) = (cell["outputs"] for cell in code_cells(notebook))
    assert number["data"]["text/plain"] == ["2"]
    assert base64.b64decode(figure["data"]["image/png"]).startswith(b"\x89PNG")
    assert not Path("here").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys; print('a warning', file=sys.stderr)", "a warning"),
        ("import os; os.getcwd()", "puts out a path"),
    ],
)
def test_script_refuses_what_is_not_for_readers(script, written, source, reason):
    notebook = written(source)
    before = notebook.read_bytes()
    with pytest.raises(ValueError, match=reason):
        script.run(notebook)
    assert notebook.read_bytes() == before
