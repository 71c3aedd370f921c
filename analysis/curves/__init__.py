"""What happens inside a model while it trains, from the probes of its records: `python -m analysis.curves`."""
