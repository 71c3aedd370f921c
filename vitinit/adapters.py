"""Adapters: where a model family has what bases and methods set. See docs/use.md, "A model of your own"."""

from vitinit.initializers.adapter import Adapter, Attention, Normal, Part, fused, linear
from vitinit.initializers.adapters import register, unregister

__all__ = ["Adapter", "Attention", "Normal", "Part", "fused", "linear", "register", "unregister"]
