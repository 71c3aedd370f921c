"""Is a model sound at the start? Weights, positions, attention, gradients and the batch, measured once and undone."""
