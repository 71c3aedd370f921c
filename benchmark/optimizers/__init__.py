"""Optimisers by name: `registry` finds those of timm and those of the files here; one file each to add one."""
