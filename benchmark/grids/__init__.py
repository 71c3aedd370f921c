"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of resolved runs."""
