"""Impulse (structured) initialisation: targets, solvers, and the method itself."""

from vitinit.initializers.methods.impulse.initializer import Impulse

__all__ = ["Impulse"]
