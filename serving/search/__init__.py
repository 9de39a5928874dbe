"""Image search: galleries, their indexes, and the page."""
