"""ScaNN is imported without TensorFlow, and nobody else is kept from it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.installed import skip_without

ROOT = Path(__file__).parents[3]

# A package that imports TensorFlow as ScaNN does. While it is imported itself, another
# thread imports TensorFlow.
FAKE_SCANN = """
    import other_thread
    try:
        import tensorflow.compat as _tf
        from tensorflow import compat
    except ModuleNotFoundError as error:
        missing = error.name
"""
OTHER_THREAD = """
    import threading

    def work():
        import tensorflow
        seen.append(tensorflow.__name__)

    seen = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


def run_python(code, *paths):
    head = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


@pytest.fixture
def fakes(tmp_path):
    files = {
        "scann/__init__.py": FAKE_SCANN,
        "other_thread.py": OTHER_THREAD,
        "scann/scann_ops/__init__.py": "",
        "scann/scann_ops/py/__init__.py": "",
        "scann/scann_ops/py/scann_ops_pybind.py": "name = 'pybind'",
        "tensorflow/__init__.py": "",
        "tensorflow/compat.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


@pytest.mark.parametrize("first", ["", "import tensorflow"])
def test_tensorflow_is_hidden_from_scann_alone(fakes, first):
    done = run_python(
        f"""
        {first}
        from tfdml.index.engines._scann_library import import_scann
        finders = list(sys.meta_path)
        assert import_scann().name == "pybind"
        import builtins, inspect, scann
        assert scann.missing == "tensorflow.compat"
        assert scann.other_thread.seen == ["tensorflow"]
        import tensorflow.compat
        assert import_scann() is sys.modules["scann.scann_ops.py.scann_ops_pybind"]
        assert sys.meta_path == finders
        assert vars(scann)["__builtins__"] is builtins
        assert "ModuleNotFoundError" in inspect.getsource(scann)
        """,
        fakes,
    )
    assert done.returncode == 0, done.stderr


def test_scann_that_was_imported_with_tensorflow_is_used_as_it_is(fakes):
    done = run_python(
        """
        import scann
        assert not hasattr(scann, "missing")
        from tfdml.index.engines._scann_library import import_scann
        assert import_scann().name == "pybind"
        assert sys.modules["scann"] is scann
        """,
        fakes,
    )
    assert done.returncode == 0, done.stderr


def test_search_with_scann_loads_no_tensorflow():
    skip_without("scann")
    done = run_python("""
        from tests.support.saved_indexes import use_method
        import numpy as np
        from tfdml.index import LocalIndex
        use_method("tree")
        rows = np.random.default_rng(0).normal(size=(400, 8))
        index = LocalIndex.build(rows)
        assert index.search(rows[:2], k=1).ids.tolist() == [[0], [1]]
        assert index.settings.method == "tree"
        assert "scann" in sys.modules
        assert not {"tensorflow", "keras", "jax"} & set(sys.modules)
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("first", ["scann", "tensorflow", "both"])
def test_scann_and_tensorflow_work_in_one_process(first):
    """Also where several threads import both."""
    skip_without("scann")
    pytest.importorskip("tensorflow")
    done = run_python(
        """
        import threading
        from tests.support.saved_indexes import use_method
        use_method("tree")

        def search():
            import numpy as np
            from tfdml.index import LocalIndex
            rows = np.random.default_rng(0).normal(size=(400, 8))
            index = LocalIndex.build(rows)
            assert index.search(rows[:2], k=1).ids.tolist() == [[0], [1]]
            done.append("scann")

        def add():
            import tensorflow as tf
            assert float(tf.reduce_sum(tf.ones([3, 4]) @ tf.ones([4, 5]))) == 60
            done.append("tensorflow")

        done = []
        orders = {
            "scann": [[search], [add], [search]],
            "tensorflow": [[add], [search], [add]],
            "both": [[search, add, search, add]],
        }
        for together in orders[FIRST]:
            threads = [threading.Thread(target=one) for one in together]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(done) == sum(map(len, orders[FIRST]))
        """.replace("FIRST", repr(first))
    )
    assert done.returncode == 0, done.stderr
