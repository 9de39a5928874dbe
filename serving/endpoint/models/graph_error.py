"""What a person needs of the errors of TensorFlow's graphs."""

import re

_LONGEST_MESSAGE = 1000


def readable_error(message: str) -> str:
    """Leave the sentence for a person of an error of a TensorFlow graph.

    TensorFlow 2.20 puts a heading, the node and its stack trace before it, and the
    names of nodes and functions behind it.

    Args:
        message: The text of the error.

    Returns:
        The sentence, at most 1000 characters and three dots.
    """
    message = re.sub(r"\s*\[Op:[^\]]*\](?: name: \S*)?\s*$", "", message)
    message = re.sub(r"^Graph execution error:\s*", "", message)
    message = re.sub(
        r"^Detected at node .*:\n(?:<stack traces unavailable>\n| .*\n|\n)*",
        "",
        message,
        flags=re.MULTILINE,
    )
    message = re.sub(r"\n[ \t]*\[\[.*", "", message).strip()
    # Where several nodes failed, the first one is told.
    several = r"\d+ root error\(s\) found\.\n\s*\(0\) \w+:\s*(.*?)\n\s*\(1\) .*"
    if first := re.fullmatch(several, message, re.DOTALL):
        message = first[1]
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "..."
    return message
