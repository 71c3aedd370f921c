"""The training loop, its processes and its checkpoints."""
