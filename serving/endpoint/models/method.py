"""Calls for signatures of another kind than predict, which this server does not run."""

from typing import NoReturn

from serving.endpoint.models.servable import Servable, StatusCode, refuse

METHOD_PREFIX = "tensorflow/serving/"
"""What the method names of signatures begin with."""

KIND_OF_METHOD = {"classify": "classification", "regress": "regression"}
"""TF Serving's word for the signature that a method needs."""


def refuse_method(servable: Servable, signature_name: str, method: str) -> NoReturn:
    """Refuse to classify or regress, over any protocol.

    Args:
        servable: The version that was asked.
        signature_name: Which signature of it.
        method: "classify" or "regress".

    Raises:
        ServableError: INVALID_ARGUMENT if there is no such signature, or it is of
            another kind, with TF Serving's texts; else UNIMPLEMENTED.
    """
    if signature_name not in servable.signature_defs:
        refuse(f"No signature was found with the name: {signature_name}")
    found = servable.signature_defs[signature_name].method_name
    wanted = f"{METHOD_PREFIX}{method}"
    if found != wanted:
        refuse(
            f"Expected {KIND_OF_METHOD[method]} signature method_name to be {wanted}. "
            f"Was: {found}"
        )
    refuse(
        f'Signature "{signature_name}" takes tf.train.Example, which this server does '
        "not support. Call Predict.",
        StatusCode.UNIMPLEMENTED,
    )
