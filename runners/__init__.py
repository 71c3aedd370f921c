"""Carrying a run out: random streams, the training loop, launching, the command line `vitinit`."""
