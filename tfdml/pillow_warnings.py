"""Ignore the warnings of Pillow in threads that overlap."""

import contextlib
import threading
import warnings
from collections.abc import Iterator


class _Silence:
    """What `warnings_ignored` counts: who is in it, and how it was before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before = warnings.catch_warnings()


_SILENCE = _Silence()


@contextlib.contextmanager
def warnings_ignored() -> Iterator[None]:
    """Ignore warnings, of which Pillow has many, in threads that overlap.

    `warnings.catch_warnings` alone would put back what another thread had set, and in
    the end the whole process would be silent.
    """
    with _SILENCE.lock:
        if not _SILENCE.inside:
            _SILENCE.before = warnings.catch_warnings()
            _SILENCE.before.__enter__()
            warnings.simplefilter("ignore")
        _SILENCE.inside += 1
    try:
        yield
    finally:
        with _SILENCE.lock:
            _SILENCE.inside -= 1
            if not _SILENCE.inside:
                _SILENCE.before.__exit__(None, None, None)
