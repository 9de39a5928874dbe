"""What Python's garbage collector has to visit."""

import gc


def set_objects_aside() -> None:
    """Leave the garbage collector only the objects that will come.

    TensorFlow brings several hundred thousand. Visiting them takes tenths of a second,
    during which no other thread runs. `gc.unfreeze` takes this back.
    """
    import tensorflow  # noqa: F401  # its objects are nearly all of them

    gc.freeze()
