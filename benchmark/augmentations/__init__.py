"""Augmentations by name: one file each."""
