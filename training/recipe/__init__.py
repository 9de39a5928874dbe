"""Recipes: what a training run does, as a typed and checked TOML file."""
