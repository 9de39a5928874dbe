"""From a trained run to a SavedModel for serving."""
