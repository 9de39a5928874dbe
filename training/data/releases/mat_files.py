"""Read MATLAB files, in which several releases keep their annotations."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import shortened


@contextmanager
def known_form(path: Path) -> Iterator[None]:
    """Name a file of annotations in which a field is missing or of another form.

    Raises:
        ValueError: One is.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} has an unexpected form ({type(error).__name__}: "
            f"{shortened(error)})."
        ) from error


def load_mat(path: Path) -> dict[str, Any]:
    """Read the variables of a MATLAB file; needs SciPy, of the extra `data`.

    Structs become objects with the fields as attributes, arrays lose the axes of length
    1 and have at least one axis.

    Raises:
        RuntimeError: SciPy is not installed.
        FileNotFoundError: There is no such file.
        ValueError: It is damaged, or no MATLAB file.
    """
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f'{path.name} is a MATLAB file. SciPy reads it: pip install "tfdml[data]".'
        ) from error
    with path.open("rb") as file:
        try:
            content = loadmat(file, squeeze_me=True, struct_as_record=False)
        except (
            *(MatReadError, NotImplementedError, OSError, TypeError, ValueError),
            zlib.error,
        ) as error:
            raise ValueError(
                f"{path} is damaged or not a MATLAB file: {shortened(error)}."
            ) from error
    return {name: np.atleast_1d(value) for name, value in content.items()}


def structs(value: Any, name: str) -> list[Any]:
    """Return the structs in a field: many, one, or none where there is no field."""
    found = np.atleast_1d(getattr(value, name, ()))
    return [one for one in found.flat if hasattr(one, "_fieldnames")]


def numbers(value: Any, name: str) -> list[float]:
    """Return the numbers in a field; none where it is empty or not there."""
    found = np.atleast_1d(getattr(value, name, ())).reshape(-1)
    return [float(number) for number in found]


def text(value: Any, name: str) -> str:
    """Return the text in a field; empty where it is empty or not there."""
    found = getattr(value, name, "")
    return found if isinstance(found, str) else ""
