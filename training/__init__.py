"""Application: from a folder of images to a trained embedder."""
