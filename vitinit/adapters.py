"""Adapters: where a model family has what bases and methods set. See docs/use.md, "A model of your own"."""

from vitinit import public

__all__, __getattr__ = public(__file__)
