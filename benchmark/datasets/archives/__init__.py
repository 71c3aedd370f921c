"""Datasets that are official archives of images: one file each."""
