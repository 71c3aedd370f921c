"""One file per family of models: where they have what bases and methods set. Nothing here is imported but by name."""
