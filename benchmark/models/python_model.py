"""A model of anyone's, by the name of its class or function, in an installed package or in a file beside the grid."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator

from vitinit.benchmark import signatures
from vitinit.benchmark.models.named import SIZES, NamedModel, with_args
from vitinit.initializers import own_files
from vitinit.initializers.errors import VitinitError, cause, unknown_name
from vitinit.initializers.foreign import contained

if TYPE_CHECKING:
    from torch import nn


class PythonModel(NamedModel):
    """A class, or a function that returns a model: `model: {python: "my_package:MyViT", args: {...}, image_size: 32}`.

    It is called with `args` and `num_classes`, and with the size of the images where it has a parameter `img_size` or
    `image_size`. What it returns takes B x 3 x S x S and gives B x classes.
    """

    label: ClassVar[str] = "Python model"
    key: ClassVar[str] = "python"
    telling: ClassVar[tuple[str, ...]] = ("python",)

    arch: Literal["python"] = "python"
    python: str
    """module:NAME, or file.py:NAME with the file's content (`initializers/own_files.py`)."""

    @classmethod
    def of_grid(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Put what is no field of the spec among the arguments."""
        return with_args(cls, fields)

    @field_validator("python")
    @classmethod
    def _names_a_module_and_a_class(cls, name: str) -> str:
        module, colon, attribute = name.partition(":")
        if own_files.is_pinned(name):
            return name
        if module.endswith(".py"):
            raise ValueError("a file is named in a grid, which adds its content to the name")
        if not (module and colon and attribute.isidentifier()):
            raise ValueError("write module:NAME, as in my_package.models:MyViT")
        return name

    @property
    def constructor(self) -> Callable[..., nn.Module]:
        """The class or function."""
        module, _, attribute = self.python.partition(":")
        if own_files.is_pinned(self.python):
            return _callable(own_files.load(self.python), self.called)
        try:
            with contained(f"module {module!r}"):
                loaded = importlib.import_module(module)
        except VitinitError:
            raise
        except Exception as error:
            raise VitinitError(f"model {self.called} cannot be loaded: {cause(error)}") from error
        found: Any = getattr(loaded, attribute, None)
        if found is None:
            public = (name for name, value in vars(loaded).items() if callable(value) and name[0] != "_")
            raise unknown_name(f"class or function of {module}", attribute, public)
        return _callable(found, self.called)

    def build(self, classes: int) -> nn.Module:
        """Call it."""
        from torch import nn

        make = self.constructor
        sizes = [name for name in SIZES if signatures.takes(make, name)]
        model = make(num_classes=classes, **dict.fromkeys(sizes, self.image_size), **self.args)
        if not isinstance(model, nn.Module):
            raise VitinitError(f"model {self.called} returns a {type(model).__name__}, and not a torch.nn.Module")
        return model


def _callable(found: Any, called: str) -> Callable[..., nn.Module]:
    if not callable(found):
        raise VitinitError(f"model {called} is a {type(found).__name__}: name a class or a function")
    return found
