"""Tensor operations that losses are made of, on `keras.ops` alone."""
