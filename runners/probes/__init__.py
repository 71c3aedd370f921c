"""Measurements of a model between epochs, which change nothing of its training."""
