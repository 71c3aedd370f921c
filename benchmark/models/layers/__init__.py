"""Layers that families are built of. They import torch, and so are not searched for families."""
