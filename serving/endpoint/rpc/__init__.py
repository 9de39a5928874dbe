"""TF Serving's protocol over gRPC."""
