"""The folder of a saved index: manifest, files, change log."""
