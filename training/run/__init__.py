"""Train an embedder from a recipe into a run folder."""
