"""A clock that a test moves."""


class Clock:
    """Stands still until `now` is changed."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now
