"""TF Serving's protocol over HTTP."""
