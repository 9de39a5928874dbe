"""The emoji data set, built from the drawings of several designers."""
