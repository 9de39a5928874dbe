"""Export an embedder as a SavedModel, and run it in this process."""
