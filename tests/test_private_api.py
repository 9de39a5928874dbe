"""Name the versions in which private parts of other packages were checked.

setup.py bounds these packages. Before a bound is raised, look at the code that uses the
private part, and run its tests with the new version.
"""

import importlib.metadata

import pytest


@pytest.mark.parametrize(
    ("package", "newest", "private_part", "user"),
    [
        (
            "uvicorn",
            (0, 54),
            "protocols.http.h11_impl.H11Protocol",
            "serving/web/timeouts.py",
        ),
        (
            "keras",
            (3, 15),
            "src.backend.common.masking.get_keras_mask",
            "tfdml/_core/batches.py",
        ),
        (
            "keras",
            (3, 15),
            "src.backend.AutocastScope, Layer._flatten_layers, Layer._clear_losses",
            "tfdml/models/_large_batch.py",
        ),
        (
            "tensorflow",
            (2, 21),
            "python.eager.record.should_record_backprop",
            "tfdml/models/_chunks_tensorflow.py",
        ),
        (
            "keras",
            (3, 15),
            "optimizers.Optimizer._backend_apply_gradients",
            "training/run/build_optimizer.py",
        ),
        (
            "keras",
            (3, 15),
            "optimizers.Optimizer(use_ema=True)._model_variables_moving_average",
            "training/run/averages.py",
        ),
    ],
)
def test_private_part_was_checked_in_the_installed_version(
    package, newest, private_part, user
):
    version = importlib.metadata.version(package)
    found = tuple(map(int, version.split(".")[:2]))
    assert found <= newest, (
        f"{user} uses {package}.{private_part}, which was checked up to "
        f"{newest[0]}.{newest[1]}, not in {version}."
    )
