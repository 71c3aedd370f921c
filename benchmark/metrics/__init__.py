"""Metrics of held-out images, by name: one file each."""
