"""Folders in the cloud, and their copies on this machine."""
