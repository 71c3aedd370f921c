"""One RunSpec -> one record."""
