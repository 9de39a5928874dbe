"""Let mkdocstrings read the examples of docstrings as code."""

import re
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Call a section `Examples:`, the only title that Griffe takes for code."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rename the section of one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
