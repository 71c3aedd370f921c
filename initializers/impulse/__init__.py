"""Impulse (structured) initialisation: targets, solvers, and the method itself."""

from initializers.impulse.initializer import Impulse

__all__ = ["Impulse"]
