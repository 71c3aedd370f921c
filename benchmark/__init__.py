"""What is measured: run specifications, grids, datasets, models, the record schema and the store."""
