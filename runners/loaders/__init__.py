"""Loaders: sources of batches."""
