"""Measure training from files to steps, in its phases, and PyTorch beside it."""
