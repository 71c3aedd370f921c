"""Bases: what sets every parameter of a model before a method does its part."""
