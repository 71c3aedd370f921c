"""A method that cannot be applied."""

from typing import ClassVar

from vitinit.initializers.registry import Initializer


class Broken(Initializer):
    """Raises."""

    name: ClassVar[str] = "broken"
    touches: ClassVar[tuple[str, ...]] = ("head.bias",)

    def apply(self, model, generator, progress):
        raise ArithmeticError("on purpose")
