"""Datasets: their names, files, splits and images."""
