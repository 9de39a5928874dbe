"""Evaluate, calibrate and compare trained embedders."""
