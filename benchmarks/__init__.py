"""Measurements, each as a ratio to a floor or a peer timed in the same run."""
