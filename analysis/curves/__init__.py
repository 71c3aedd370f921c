"""Curves of a model's inside over training, from the probes of its records: `python -m analysis.curves`."""
