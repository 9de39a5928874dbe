"""The endpoint under load."""
