"""Models in memory: versions, their states, and what they are loaded from."""
