"""Shard of the images that each of several processes takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shard:
    """One of `size` processes that share the batches of a run; alone by default."""

    rank: int = 0
    size: int = 1

    def part(self, count: int, unit: int = 1) -> slice:
        """This process's contiguous part of `count` items; the parts of all ranks cover each item exactly once.

        Args:
            count: how many items there are.
            unit: so many neighbours (counted from item 0) always stay in one part.
        """
        units = -(-count // unit)
        first, last = (units * rank // self.size for rank in (self.rank, self.rank + 1))
        return slice(min(first * unit, count), min(last * unit, count))
