"""Preparing a dataset once and for all: packing its files, or decoding them for FFCV."""
