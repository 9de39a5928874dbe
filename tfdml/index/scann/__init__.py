"""The index that searches with ScaNN."""
