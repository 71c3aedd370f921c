"""Shared basics of the runners: random streams, stopping, this machine, execution settings."""
