"""Files of our own: written whole or not at all, read from YAML."""
