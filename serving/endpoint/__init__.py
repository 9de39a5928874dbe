"""The embedding endpoint, which speaks TF Serving's protocols."""
