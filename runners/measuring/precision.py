"""Speed of this processor at each precision: many lack instructions for some. Imports no torch here."""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from pydantic import PositiveFloat

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.files import kept
from vitinit.benchmark.spec import Recipe
from vitinit.runners.basics.environment import VARIABLES, processor

KIND = "precision"
"""Folder of the cache that the answers are in."""
SIZE = 256
"""Rows and columns of the matrices: at once multiplied, and no longer small."""
MANY = 3
"""A recipe that asks for a precision so many times slower than fp32 is warned of."""
PRODUCTS, SECONDS = 5, 0.2
"""At least so many are timed at each precision, and at least so long."""


class Products(Frozen):
    """GFLOP/s that one thread reaches in a product of two matrices of SIZE x SIZE, by precision."""

    fp32: PositiveFloat
    bf16: PositiveFloat
    fp16: PositiveFloat

    def times_slower(self, precision: str) -> float:
        """Return the slowdown factor against fp32."""
        return self.fp32 / float(getattr(self, precision))

    def describe(self, precision: str) -> str:
        """The numbers behind `times_slower`."""
        rate = getattr(self, precision)
        return f"a product of {SIZE} x {SIZE}: {rate:.2f} against {self.fp32:.0f} GFLOP/s"


def products() -> Products:
    """Those of this processor; measured in a process of its own, and kept in the user's cache folder."""

    def measure() -> Products:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(_measure).result()

    return kept.answer(KIND, _key(), Products, measure)


def warnings(recipes: Iterable[Recipe]) -> list[str]:
    """One line for each recipe that asks for a precision in which this processor is many times slower than in fp32."""
    asked = sorted({(recipe.name, recipe.precision) for recipe in recipes if recipe.precision in ("bf16", "fp16")})
    if not asked:
        return []
    measured = products()
    return [
        f"recipe {name} asks for {precision}, in which this processor is {measured.times_slower(precision):.0f} times "
        f"slower than in fp32 ({measured.describe(precision)})"
        for name, precision in asked
        if measured.times_slower(precision) >= MANY
    ]


def _measure() -> Products:
    """The best of many: a processor that does other things beside is not slower for it."""
    import torch

    torch.set_num_threads(1)
    rates = {}
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        left, right = (torch.randn(SIZE, SIZE).to(dtype) for _ in range(2))
        left @ right
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < PRODUCTS or time.perf_counter() - began < SECONDS:
            start = time.perf_counter()
            left @ right
            times.append(time.perf_counter() - start)
        rates[precision] = 2e-9 * SIZE**3 / min(times)
    return Products.model_validate(rates)


def _key() -> str:
    """Return a key of the processor, torch, and the settings that choose its kernels."""
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return kept.key((Path(__file__),), repr((platform.machine(), processor(), sorted(variables.items()))))
