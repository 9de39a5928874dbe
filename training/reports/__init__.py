"""Reports of a run, as text and as HTML."""
