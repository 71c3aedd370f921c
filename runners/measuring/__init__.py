"""Measurements of this machine and of a theorem, beside any study."""
