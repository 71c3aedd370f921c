"""Tables from records: `python -m analysis.tables`."""
