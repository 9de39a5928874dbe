"""Metrics of retrieval, clustering, verification and hubness."""
