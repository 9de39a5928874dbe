"""Compare ways to read training images."""
