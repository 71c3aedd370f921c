"""A table on a terminal, and what it says in a few sentences."""
