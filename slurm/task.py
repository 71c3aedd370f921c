"""The call that a job makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Task(Generic[T]):
    """A call."""

    def __init__(self, function: Callable[[T], object]) -> None:
        self.function = function

    def __call__(self, argument: T) -> None:
        self.function(argument)
