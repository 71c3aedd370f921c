"""Trackers of experiments, by name: one file each."""
