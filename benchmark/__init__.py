"""Run specifications, grids, datasets, models, the record schema and the store."""
