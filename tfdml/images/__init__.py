"""Read images, and cut and scale them to what a network sees."""
