"""From a grid to its runs: planned, and carried out here or as jobs of a cluster."""
