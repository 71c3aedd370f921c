"""The methods: one file per method, pure functions of (model, generator). See `registry.py` for what a method is."""
