"""The methods: one file per method, pure functions of (model, generator). See `base.py` for what a method is."""
