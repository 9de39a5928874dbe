"""Parse the addresses of TF Serving's REST protocol."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.types import Scope

from ...web.status import refuse
from ..models.saved_model import is_version

_MODEL = r"/v1/models/(?P<model>[^/:]+)"
_VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(f"{_MODEL}{_VERSION}:(?P<method>classify|regress|predict)", re.I)
_GET = re.compile(
    f"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION}(?P<metadata>/metadata)?", re.I
)


@dataclass(frozen=True)
class Asked:
    """The call, model and version of a request.

    Attributes:
        call: "predict", "classify", "regress", "metadata" or "status".
        model: Name of the model; None if the path has none.
        digits: Number of the version, if the path has one.
        label: Label of the version, if the path has one.
    """

    call: str
    model: str | None
    digits: str | None
    label: str | None

    def version(self) -> int | None:
        """Return the number of the version.

        Raises:
            StatusError: It has more than 64 bits.
        """
        if self.digits is None:
            return None
        if not is_version(self.digits):
            refuse(f"Failed to convert version: {self.digits} to numeric.")
        return int(self.digits)


def path_of(scope: Scope) -> str:
    """Return the path as it was sent, still percent-encoded."""
    raw = scope.get("raw_path") or scope["path"].encode()
    return str(raw.decode("latin-1"))


def find_asked(method: str, path: str) -> Asked:
    """Find out what a request asks for.

    Args:
        method: Method of HTTP, such as "POST".
        path: As `path_of` returns it. Letter case matters only in names.

    Raises:
        StatusError: It is not an address of the protocol, with TF Serving's text.
    """
    if method == "POST" and (match := _POST.fullmatch(path)):
        call = match["method"].lower()
    elif method == "GET" and (match := _GET.fullmatch(path)):
        call = "metadata" if match["metadata"] else "status"
    else:
        refuse(f"Malformed request: {method} {path}")
    model, label = match["model"], match["label"]
    return Asked(
        call,
        None if model is None else unquote(model),
        match["version"],
        None if label is None else unquote(label),
    )
