"""Load ScaNN's TensorFlow operators, before a model that searches is loaded.

TensorFlow knows an operator once its library was loaded into the process. Whoever
loads a model that `tfdml combine` wrote calls this first. Keras is not
needed.
"""

from typing import Any

from tfdml.messages import shortened

_NAMESPACE = "Scann>"


def register_scann_operators(meta_graph: Any) -> None:
    """Make ScaNN's operators known if a graph has one of them; else do nothing.

    Args:
        meta_graph: A `MetaGraphDef` of a SavedModel.

    Raises:
        RuntimeError: It has one, and they cannot be had here.
    """
    # `stripped_op_list` leaves operators out that are not TensorFlow's own.
    functions = meta_graph.graph_def.library.function
    nodes = (node for function in functions for node in function.node_def)
    if any(node.op.startswith(_NAMESPACE) for node in nodes):
        import_scann_operators()


def import_scann_operators() -> Any:
    """Return ScaNN's module of TensorFlow operators.

    Raises:
        RuntimeError: ScaNN is not installed, or not for this TensorFlow.
    """
    try:
        # Not at the top: few models need it, and it loads TensorFlow.
        from scann.scann_ops.py import scann_ops
    except Exception as error:
        # Not only ImportError: beside a TensorFlow that they were not built for,
        # ScaNN raises that TensorFlow's NotFoundError.
        raise RuntimeError(
            "it needs ScaNN's TensorFlow operators (pip install "
            '"tfdml[combine]"; of TensorFlow Serving, a build that has them, such as '
            "google/tf-serving-scann), which cannot be loaded here "
            f"({type(error).__name__}: {shortened(error)})"
        ) from error
    return scann_ops
