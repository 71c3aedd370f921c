"""Files of our own: written whole or not at all, kept in the user's cache, read from YAML."""
